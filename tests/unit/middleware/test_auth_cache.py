"""The bounded memory of permissions."""

from swift_hapi.middleware.auth_cache import ExpiringCache


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def test_entries_expire():
    clock = Clock()
    cache = ExpiringCache(10, 60, clock)
    cache.put("a", "1")
    clock.now += 59.9
    assert cache.get("a") == "1"
    clock.now += 0.1  # being read does not prolong it
    assert cache.get("a") is None
    assert len(cache) == 0


def test_the_least_recently_used_goes_first():
    cache = ExpiringCache(2, 60, Clock())
    cache.put("a", "1")
    cache.put("b", "2")
    assert cache.get("a") == "1"
    cache.put("c", "3")
    assert (cache.get("a"), cache.get("b"), cache.get("c")) == ("1", None, "3")
    assert len(cache) == 2


def test_no_lifetime_remembers_nothing():
    cache = ExpiringCache(2, 0, Clock())
    cache.put("a", "1")
    assert cache.get("a") is None


def test_forget():
    cache = ExpiringCache(2, 60, Clock())
    cache.put("a", "1")
    cache.forget("a")
    cache.forget("never there")
    assert cache.get("a") is None
