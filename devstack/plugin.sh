#!/bin/bash
# devstack plugin of swift-hapi: the filter in Swift's proxy, the engine as a service beside it.

_XTRACE_HAPI=$(set +o | grep xtrace)
set +o xtrace

function install_hapi {
    # CPU builds of PyTorch are a tenth of the size of the default ones.
    local torch_index=${HAPI_TORCH_INDEX:-}
    if [[ -n "$torch_index" ]]; then
        pip_install --index-url "$torch_index" torch torchvision
    fi
    setup_develop "$HAPI_DIR" "storage"
}

function configure_hapi_engine {
    sudo install -d -o "$STACK_USER" "$HAPI_CONF_DIR"
    install -d -m 0700 "$HAPI_STATE_DIR" "$HAPI_STATE_DIR/models" "$HAPI_STATE_DIR/cache"
    install -d -m 0700 "$(dirname "$HAPI_ENGINE_SOCKET")"
    local conf=$HAPI_CONF_DIR/engine.conf
    cp "$HAPI_DIR/etc/hapi-engine.conf-sample" "$conf"
    iniset "$conf" engine socket "$HAPI_ENGINE_SOCKET"
    iniset "$conf" engine model_dir "$HAPI_STATE_DIR/models"
    iniset "$conf" engine cache_dir "$HAPI_STATE_DIR/cache"
    iniset "$conf" engine engine_cpus "$HAPI_ENGINE_CPUS"
}

function configure_hapi_filter {
    local proxy_conf pipeline
    proxy_conf=$SWIFT_CONF_DIR/proxy-server.conf
    iniset "$proxy_conf" filter:hapi use egg:swift-hapi#hapi
    iniset "$proxy_conf" filter:hapi engine "unix:$HAPI_ENGINE_SOCKET"
    pipeline=$(iniget "$proxy_conf" pipeline:main pipeline)
    if [[ " $pipeline " == *" hapi "* ]]; then
        return
    fi
    # Right of auth and ratelimit; left of everything that assembles or decrypts objects. What is
    # not listed Swift would insert on our left, so that the assemblers are listed here.
    local assemblers="copy slo dlo versioned_writes symlink" name assembled="" rest=""
    for name in $pipeline; do
        case $name in
            copy|slo|dlo|versioned_writes|symlink|keymaster|kms_keymaster|encryption) ;;
            proxy-logging|proxy-server) ;;
            *) rest+="$name " ;;
        esac
    done
    for name in $assemblers; do
        assembled+="$name "
        if [[ -z $(iniget "$proxy_conf" "filter:$name" use) ]]; then
            iniset "$proxy_conf" "filter:$name" use "egg:swift#$name"
        fi
    done
    for name in keymaster kms_keymaster encryption; do
        [[ " $pipeline " == *" $name "* ]] && assembled+="$name "
    done
    # The first proxy-logging was dropped above with the last one; it goes back behind cache.
    rest=${rest/ cache / cache proxy-logging }
    iniset "$proxy_conf" pipeline:main pipeline "${rest}hapi ${assembled}proxy-logging proxy-server"
}

function start_hapi_engine {
    run_process hapi-engine "$(which hapi-engine) --config $HAPI_CONF_DIR/engine.conf"
    local wait="while ! curl -fs --unix-socket $HAPI_ENGINE_SOCKET http://engine/readyz; do sleep 1; done"
    if ! timeout "$SERVICE_TIMEOUT" sh -c "$wait" >/dev/null; then
        die $LINENO "hapi-engine did not become ready"
    fi
}

if is_service_enabled hapi-engine; then
    if [[ "$1" == "stack" && "$2" == "install" ]]; then
        echo_summary "Installing swift-hapi"
        install_hapi
    elif [[ "$1" == "stack" && "$2" == "post-config" ]]; then
        echo_summary "Configuring swift-hapi"
        configure_hapi_engine
        configure_hapi_filter
    elif [[ "$1" == "stack" && "$2" == "extra" ]]; then
        echo_summary "Starting hapi-engine"
        start_hapi_engine
    fi
    if [[ "$1" == "unstack" ]]; then
        stop_process hapi-engine
    fi
    if [[ "$1" == "clean" ]]; then
        sudo rm -rf "$HAPI_CONF_DIR"
        rm -rf "$HAPI_STATE_DIR"
    fi
fi

$_XTRACE_HAPI
