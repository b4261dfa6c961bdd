from configparser import ConfigParser, RawConfigParser
from pathlib import Path

import pytest

from swift_hapi.cluster import ClusterConfig, User, conffiles
from swift_hapi.cluster.layout import Layout

LAYOUT = Layout(dir=Path("/c"), data=Path("/data"), run=Path("/c/run"))
PORTS = conffiles.Ports(proxy=1, account=2, container=3, memcached=4, objects=(5, 6))


def proxy(**options) -> ConfigParser:
    parser = ConfigParser()
    parser.read_string(conffiles.proxy_conf(LAYOUT, ClusterConfig(dir="/c", **options), PORTS))
    return parser


@pytest.mark.parametrize("encryption", [False, True])
def test_filter_stands_between_auth_and_what_assembles_objects(encryption):
    names = conffiles.pipeline(ClusterConfig(dir="/c", encryption=encryption))
    place = names.index("hapi")
    assert {"ratelimit", "tempurl", "tempauth", "gatekeeper"} <= set(names[:place])
    right = {"copy", "slo", "dlo", "versioned_writes", "symlink"}
    assert right | ({"encryption"} if encryption else set()) <= set(names[place:])
    assert ("encryption" in names) is encryption


def test_filter_section():
    conf = proxy(filter_conf=(("allow_anonymous", "true"), ("note", "100%")))
    assert dict(conf["filter:hapi"]).items() >= {
        "use": "egg:swift-hapi#hapi",
        "engine": "unix:/c/run/engine.sock",
        "allow_anonymous": "true",
        "note": "100%",
    }.items()


def test_own_option_wins():
    conf = proxy(filter_conf=(("engine", "unix:/other"),))
    assert conf["filter:hapi"]["engine"] == "unix:/other"


def test_without_hapi_no_trace_of_it():
    text = conffiles.proxy_conf(LAYOUT, ClusterConfig(dir="/c", hapi=False), PORTS)
    assert "hapi" not in text.replace("swift_hapi", "")


def test_every_filter_of_the_pipeline_has_a_section_that_swift_provides():
    from importlib.metadata import entry_points

    known = {entry.name for entry in entry_points(group="paste.filter_factory")}
    conf = proxy(encryption=True)
    for name in conf["pipeline:main"]["pipeline"].split()[:-1]:
        assert conf[f"filter:{name}"]["use"].partition("#")[2] in known


def test_users_and_token_life():
    users = (User("a", "b", "k%y", (".admin", ".reseller_admin")), User("c", "d", "l"))
    section = proxy(users=users, token_life=60)["filter:tempauth"]
    assert section["user_a_b"] == "k%y .admin .reseller_admin"
    assert section["user_c_d"] == "l"
    assert section["token_life"] == "60"


def test_workers_are_the_proxys():
    assert proxy(workers=2)["DEFAULT"]["workers"] == "2"
    conf = ConfigParser()
    config = ClusterConfig(dir="/c", workers=2)
    conf.read_string(conffiles.backend_conf(LAYOUT, config, "object1", "object", 5))
    assert conf["DEFAULT"]["workers"] == "0"
    assert conf["DEFAULT"]["bind_port"] == "5"
    assert conf["DEFAULT"]["devices"] == "/data/devices"


def test_every_cluster_has_its_own_secrets():
    config = ClusterConfig(dir="/c")
    assert conffiles.swift_conf(config) != conffiles.swift_conf(config)


def test_listing_limit():
    conf = ConfigParser()
    conf.read_string(conffiles.swift_conf(ClusterConfig(dir="/c", listing_limit=7)))
    assert conf["swift-constraints"]["container_listing_limit"] == "7"


def test_engine_section():
    config = ClusterConfig(dir="/c", engine_threads=2, engine_conf=(("queue", "3"),))
    conf = RawConfigParser()
    conf.read_string(conffiles.engine_conf(LAYOUT, config))
    assert dict(conf["engine"]) == {
        "socket": "/c/run/engine.sock",
        "model_dir": "/c/engine/models",
        "cache_dir": "/c/engine/cache",
        "engine_cpus": "2",
        "queue": "3",
    }
