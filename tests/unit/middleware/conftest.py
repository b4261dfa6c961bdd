import pytest

from tests.unit.middleware.support import House


@pytest.fixture
def make_house(tmp_path):
    """``make_house(option=value)``: filter, engine and Swift, the last two scripted."""
    houses = []

    def make(**options) -> House:
        directory = tmp_path / str(len(houses))
        directory.mkdir()
        houses.append(House(directory, **options))
        return houses[-1]

    yield make
    for house in houses:
        house.engine.close()


@pytest.fixture
def house(make_house) -> House:
    return make_house()
