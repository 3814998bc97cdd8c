"""The proxy for requests to an API server: the kubeconfig's, or the environment's by Go's rules."""

import ipaddress
from collections.abc import Mapping
from urllib.parse import SplitResult, urlsplit

from gpu_control_plane.kube.errors import ConfigError

type _Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def proxy_for(server: str, proxy_url: str | None, environ: Mapping[str, str]) -> str | None:
    """The proxy's URL, or None to connect directly. A `proxy_url` wins over the environment and NO_PROXY."""
    if proxy_url:
        return _checked(proxy_url, server, "proxy-url in the kubeconfig")
    target = urlsplit(server)
    for variable in (f"{target.scheme}_proxy".upper(), f"{target.scheme}_proxy"):
        if value := environ.get(variable):
            excluded = environ.get("NO_PROXY") or environ.get("no_proxy") or ""
            return None if _bypassed(target, excluded) else _checked(value, server, f"${variable}")
    return None


def _checked(url: str, server: str, origin: str) -> str:
    absolute = url if "://" in url else f"http://{url}"
    parts = urlsplit(absolute)
    if parts.scheme not in ("http", "https"):
        raise ConfigError(
            f"{origin} asks for a {parts.scheme} proxy ({_shown(parts)}), which is not supported. "
            "Use an http:// or https:// proxy."
        )
    if not parts.hostname:
        raise ConfigError(f"{origin} names no host ({_shown(parts)}). Write it as http://host:port.")
    if parts.scheme == "https" and parts.hostname == urlsplit(server).hostname:
        raise ConfigError(
            f"{origin} ({_shown(parts)}) is an https proxy on the very host of the API server, whose "
            "certificates cannot be told apart. Give the proxy a name of its own, or use http://."
        )
    return absolute


def _shown(parts: SplitResult) -> str:
    """The URL without a password: messages end in logs."""
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _bypassed(target: SplitResult, no_proxy: str) -> bool:
    host = (target.hostname or "").rstrip(".")
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    port = target.port or (443 if target.scheme == "https" else 80)
    return any(_excludes(entry.strip().lower(), host, address, port) for entry in no_proxy.split(","))


def _excludes(entry: str, host: str, address: _Address | None, port: int) -> bool:
    """One entry of NO_PROXY: `*`, a CIDR, an address or a domain with all below it, perhaps with a port."""
    if entry in ("", "*"):
        return entry == "*"
    if "/" in entry:
        return address is not None and _within(address, entry)
    name, wanted_port = _split_port(entry)
    if wanted_port not in (None, port):
        return False
    if address is not None:
        return address == _address(name)
    domain = name.removeprefix("*").strip(".")
    return host.endswith(f".{domain}") or (host == domain and not name.startswith((".", "*.")))


def _within(address: _Address, network: str) -> bool:
    try:
        return address in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False


def _split_port(entry: str) -> tuple[str, int | None]:
    if entry.startswith("["):
        name, _, rest = entry[1:].partition("]")
        return name, int(rest[1:]) if rest[1:].isdecimal() else None
    name, colon, port = entry.rpartition(":")
    if colon and ":" not in name and port.isdecimal():
        return name, int(port)
    return entry, None


def _address(host: str) -> _Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
