"""Which hosts are this machine itself."""

from __future__ import annotations

import ipaddress


def is_loopback(host: str) -> bool:
    """Whether a name or an address can only be this machine.

    >>> [is_loopback(host) for host in ("localhost", "127.0.0.9", "::1", "10.0.0.1", "localhost.evil.example", "")]
    [True, True, True, False, False, False]
    """
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_of(authority: str) -> str:
    """The host of `host:port`.

    >>> [host_of(given) for given in ("LocalHost:8000", "[::1]:8000", "[::1]", "127.0.0.1", "a@b", "x:y:z")]
    ['LocalHost', '::1', '::1', '127.0.0.1', 'a@b', 'x:y:z']
    """
    host, bracket, rest = authority.partition("]")
    if host.startswith("[") and bracket and _is_port(rest):
        return host[1:]
    host, _, port = authority.partition(":")
    return host if _is_port(f":{port}") or not port else authority


def _is_port(text: str) -> bool:
    return text == "" or (text.startswith(":") and text[1:].isascii() and text[1:].isdigit())
