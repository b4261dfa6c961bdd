import pytest

from swift_hapi.cluster import ClusterConfig, User


def test_default_users():
    admin, other, plain = ClusterConfig(dir="/x").users
    assert (admin.name, admin.key, admin.groups) == ("test:tester", "testing", (".admin",))
    assert (other.name, other.key, other.groups) == ("test2:tester2", "testing2", (".admin",))
    assert (plain.name, plain.key, plain.groups) == ("test:tester3", "testing3", ())


def test_directory_becomes_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert ClusterConfig(dir="c").dir == tmp_path / "c"
    assert ClusterConfig(dir="c", data_dir="d").data_dir == tmp_path / "d"


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("replicas", 0),
        ("replicas", 2),
        ("object_devices", 0),
        ("workers", -1),
        ("proxy_host", "localhost"),
        ("engine_threads", 0),
        ("token_life", 0),
        ("listing_limit", 0),
        ("users", ()),
        ("users", (User("a", "b", "c"),)),
        ("filter_conf", (("two words", "v"),)),
        ("engine_conf", (("k", "v\n[other]"),)),
        ("proxy_conf", (("[section]", "v"),)),
        ("dir", "/x\ny"),
    ],
)
def test_bad_option_is_named(option, value):
    with pytest.raises(ValueError, match=option):
        ClusterConfig(**({"dir": "/x"} | {option: value}))


@pytest.mark.parametrize(
    "fields",
    [("a_b", "u", "k"), ("a", "u_v", "k"), ("", "u", "k"), ("a", "u", ""), ("a", "u", "k l")],
)
def test_user_that_tempauth_cannot_hold(fields):
    with pytest.raises(ValueError):
        User(*fields)
