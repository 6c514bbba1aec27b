"""The address of a store as a source: what is a password in it."""

import pytest

from kohort.model.errors import ConfigError
from kohort.pipeline.sources.postgres.address import is_database, split_password

# fmt: off
ADDRESSES = {
    "postgresql://h/d":                            ("postgresql://h/d", None),
    "postgresql://me@h:5/d":                       ("postgresql://me@h:5/d", None),
    "postgresql://me:word@h/d":                    ("postgresql://me@h/d", "word"),
    "postgresql://me:@h/d":                        ("postgresql://me@h/d", None),
    "postgres://me:w%40r%2Fd@a:1,b:2/d":           ("postgres://me@a:1,b:2/d", "w@r/d"),
    "postgresql://me:w:rd@[::1]:5/d":              ("postgresql://me@[::1]:5/d", "w:rd"),
    "postgresql:///d?host=/tmp":                   ("postgresql:///d?host=/tmp", None),
    "postgresql:///d?password=word&host=/tmp":     ("postgresql:///d?host=/tmp", "word"),
    "postgresql://me@/d?sslmode=require&password=w%23": ("postgresql://me@/d?sslmode=require", "w#"),
    "postgresql://me:one@h/d?password=two":        ("postgresql://me@h/d", "two"),
    "postgresql://":                               ("postgresql://", None),
}
# fmt: on
UNREADABLE = (
    "postgresql://me:wo/rd@h/d",
    "postgresql://me:wo?rd@h/d",
    "postgresql://me:wo#rd@h/d",
    "postgresql://[::1/d",
    "postgresql://h/d?sslpassword=word",
)


@pytest.mark.parametrize("address", ADDRESSES)
def test_the_password_of_an_address(address: str) -> None:
    assert is_database(address)
    assert split_password(address) == ADDRESSES[address]


@pytest.mark.parametrize("address", UNREADABLE)
def test_an_address_that_cannot_be_read_is_not_shown(address: str) -> None:
    with pytest.raises(ConfigError, match="the address of the store cannot be read") as refused:
        split_password(address)
    assert "wo" not in str(refused.value).replace("password", "")
