"""Which addresses and which URLs the step http refuses, in whatever way they are written."""

from __future__ import annotations

import ipaddress
from ipaddress import IPv4Address, IPv6Address, IPv6Network

import pytest
from hypothesis import given, strategies as st

from kargo_py.steps.http_addresses import Address, AddressRules, Network, literal
from kargo_py.steps.http_url import ProxyUrl, Url, read_proxy, read_url

RULES = AddressRules()
LINK_LOCAL = st.integers(0, 2**16 - 1).map(lambda low: IPv4Address((169 << 24) + (254 << 16) + low))
ORDINARY = st.ip_addresses(v=4).filter(
    lambda address: (
        not address.is_link_local and str(address) not in {"100.100.100.200", "168.63.129.16", "192.0.0.192"}
    )
)


def octets(address: IPv4Address) -> list[int]:
    return list(address.packed)


def spellings(address: IPv4Address) -> list[str]:
    """Ways in which the C library reads *address*."""
    a, b, c, d = octets(address)
    number = int(address)
    return [
        str(address),
        str(number),
        hex(number),
        hex(number).upper().replace("0X", "0x"),
        f"0{number:o}",
        f"{a}.{number & 0xFFFFFF}",
        f"{a}.{b}.{number & 0xFFFF}",
        f"0{a:o}.0x{b:x}.{c}.{d}",
        f"{address}.",
    ]


def wrapped(address: IPv4Address) -> list[IPv6Address]:
    """Addresses of IPv6 behind which *address* is."""
    low = int(address)
    return [
        IPv6Address((0xFFFF << 32) + low),
        IPv6Address(low),
        IPv6Address((0xFFFF << 48) + low),
        IPv6Address((0x64FF9B << 96) + low),
        IPv6Address((0x64FF9B0001 << 80) + low),
        IPv6Address((0x2002 << 112) + (low << 80) + 1),
        IPv6Address((0x20010000 << 96) + (int(IPv4Address("192.0.2.1")) << 64) + (low ^ 0xFFFFFFFF)),
    ]


class TestAddresses:
    @given(LINK_LOCAL)
    def test_every_spelling(self, address: IPv4Address) -> None:
        """A link-local address is refused however it is written."""
        for text in spellings(address):
            assert literal(text) == address
            assert "link-local" in (RULES.name_refusal(text) or ""), text

    @given(LINK_LOCAL)
    def test_within_ipv6(self, address: IPv4Address) -> None:
        """So is one of IPv6 behind which it is."""
        for each in wrapped(address):
            assert RULES.refusal(each) is not None, each
            assert RULES.name_refusal(str(each)) is not None, each

    @given(ORDINARY)
    def test_others_are_called(self, address: IPv4Address) -> None:
        """No other address is, private and loopback ones neither, and no wrapping makes it so."""
        everything: list[Address] = [address, *wrapped(address)]
        assert [each for each in everything if RULES.refusal(each) is not None] == []

    @pytest.mark.parametrize(
        "address",
        [
            *("fe80::1", "fe80::1%eth0", "febf::1", "fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "fd00:42::42"),
            *("100.100.100.200", "168.63.129.16", "192.0.0.192", "::ffff:100.100.100.200", "64:ff9b::a83f:8110"),
        ],
    )
    def test_metadata_and_link_local(self, address: str) -> None:
        """Metadata services have other addresses, too."""
        assert RULES.refusal(ipaddress.ip_address(address)) is not None

    @pytest.mark.parametrize(
        "host", ["metadata.google.internal", "Metadata.Google.Internal.", "metadata.goog", "instance-data.ec2.internal"]
    )
    def test_names(self, host: str) -> None:
        """Their names are refused unseen, for those behind a proxy."""
        assert RULES.name_refusal(host) == f"{host} belongs to the metadata service of a cloud"

    @pytest.mark.parametrize(
        "host", ["metadata", "example.com", "1.example.com", "a.b.c.d", "1.2.3.4.5", "0x", "١٢٧.1"]
    )
    def test_other_names(self, host: str) -> None:
        """A name is nothing but a name."""
        assert literal(host) is None
        assert RULES.name_refusal(host) is None

    @pytest.mark.parametrize(
        ("address", "refused"),
        [
            *(("127.0.0.1", True), ("::ffff:127.0.0.1", True), ("0.0.0.0", True), ("::", True), ("10.1.2.3", True)),
            *(
                ("64:ff9b::a01:203", True),
                ("fd12::1", True),
                ("::1", False),
                ("192.0.2.1", False),
                ("2001:db8::1", False),
            ),
        ],
    )
    def test_excluded(self, address: str, refused: bool) -> None:
        """What is excluded is so in each of its forms; no address at all is this machine."""
        networks: list[Network] = [ipaddress.ip_network(text) for text in ("127.0.0.0/8", "10.0.0.0/8", "fd12::/16")]

        why = AddressRules(networks).refusal(ipaddress.ip_address(address))

        assert (why is not None) is refused
        assert why is None or "--http-deny" in why

    @given(st.ip_addresses(v=6, network=IPv6Network("2001:db8::/32")))
    def test_ipv6(self, address: IPv6Address) -> None:
        """Other addresses of IPv6 are called."""
        assert RULES.refusal(address) is None


class TestUrls:
    @pytest.mark.parametrize(
        ("text", "url"),
        [
            ("http://a", Url("http", "a", 80, "/")),
            ("HTTPS://A.Example:443/x", Url("https", "a.example", 443, "/x")),
            ("http://a:8080/x y?q=ü z#part", Url("http", "a", 8080, "/x%20y?q=%C3%BC%20z")),
            ("http://a/%2e%2e/b?x=%20", Url("http", "a", 80, "/%2e%2e/b?x=%20")),
            ("http://bücher.example/", Url("http", "xn--bcher-kva.example", 80, "/")),
            ("http://[::1]:8/", Url("http", "::1", 8, "/")),
            ("http://my_service.ns.svc./?", Url("http", "my_service.ns.svc.", 80, "/")),
            ("http://a:/x", Url("http", "a", 80, "/x")),
        ],
    )
    def test_read(self, text: str, url: Url) -> None:
        """The host is in lower case ASCII, what stands in the rest is encoded as needed, and parts go."""
        assert read_url(text) == url

    @pytest.mark.parametrize(
        ("text", "why"),
        [
            *(("", "http://"), ("a.example/x", "http://"), ("//a/x", "http://"), ("file:///etc/passwd", "http://")),
            *(("gopher://a/", "http://"), ("http:a", "host"), ("http:///x", "host"), ("http://", "host")),
            *(
                ("http://u:secret@a/", "Authorization"),
                ("http://a\\@b/", "Authorization"),
                ("http://@a/", "Authorization"),
            ),
            *(("http://a:0/", "port"), ("http://a:65536/", "port"), ("http://a:x/", "port"), ("http://a:-1/", "port")),
            *(("http://a\r\nX: y/", "control"), ("http://a/\n", "control"), ("http://a/\x00", "control")),
            *(
                ("http://a b/", "host"),
                ("http://a%00b/", "host"),
                ("http://[::1%25eth0]/", "host"),
                ("http://[::1", "host"),
            ),
            *(
                ("http://[::1]x/", "host"),
                ("http://[1.2.3.4]/", "host"),
                ("http://-a/", "host"),
                ("http://a..b/", "host"),
            ),
            (f"http://{'a' * 64}/", "host"),
            (f"http://{'a.' * 127}a/", "host"),
            (f"http://a/{'x' * 9000}", "8192"),
            ("http://a℀b/", "host"),
        ],
    )
    def test_refused(self, text: str, why: str) -> None:
        """The text says what is wrong, and repeats nothing of the URL."""
        with pytest.raises(ValueError, match=why) as caught:
            read_url(text)

        assert "secret" not in str(caught.value)

    @given(
        st.text(st.characters(codec="utf-8"), max_size=40), st.sampled_from(["http://", "https://a/", "http://a", ""])
    )
    def test_any_text(self, text: str, before: str) -> None:
        """Any text is a URL or a ValueError; one that is read can be sent, and reads as itself."""
        try:
            url = read_url(before + text)
        except ValueError:
            return
        assert (url.host + url.target).isascii()
        assert not any(char.isspace() or ord(char) < 33 for char in url.host + url.target)
        assert read_url(url.origin + url.target) == url

    def test_query(self) -> None:
        """Parameters are put behind those that stand there."""
        parameters = [("a b", "c&d"), ("ü", "")]
        assert read_url("http://a").with_query(parameters).target == "/?a+b=c%26d&%C3%BC="
        assert read_url("http://a/x?y").with_query(parameters).target == "/x?y&a+b=c%26d&%C3%BC="
        assert read_url("http://a/x?y").with_query([]).target == "/x?y"

    def test_what_is_shown(self) -> None:
        """Neither path nor query, where tokens are."""
        assert read_url("https://a:8443/token?key=secret").origin == "https://a:8443"
        assert read_url("http://[::1]/token").origin == "http://[::1]"

    @pytest.mark.parametrize(
        ("location", "url"),
        [
            ("/b", "https://a:8443/b"),
            ("b?c", "https://a:8443/x/b?c"),
            ("//b", "https://b/"),
            ("http://b/c", "http://b/c"),
            ("?q=1", "https://a:8443/x/y?q=1"),
        ],
    )
    def test_joined(self, location: str, url: str) -> None:
        """A redirect may be relative."""
        assert read_url("https://a:8443/x/y?z").joined(location) == read_url(url)

    @pytest.mark.parametrize("location", ["http://u:p@b/", "javascript:alert(1)", "http://b:0/", "\x01", "file:///x"])
    def test_joined_to_what_is_none(self, location: str) -> None:
        """It is read as strictly."""
        with pytest.raises(ValueError, match=r"no URL|control"):
            read_url("https://a/").joined(location)

    @pytest.mark.parametrize(
        ("other", "kept"),
        [
            *(("https://a/y", True), ("https://a:444/", False), ("http://a/", False), ("https://b/", False)),
            ("https://a.b/", False),
        ],
    )
    def test_secrets_are_kept_for(self, other: str, kept: bool) -> None:
        """The same server, and nobody else."""
        assert read_url("https://a/x").keeps_secrets_for(read_url(other)) is kept

    def test_to_tls(self) -> None:
        """What was sent unprotected may be sent protected, on the ports that everybody has for that."""
        assert read_url("http://a/").keeps_secrets_for(read_url("https://a/"))
        assert not read_url("http://a:8080/").keeps_secrets_for(read_url("https://a/"))

    def test_proxy(self) -> None:
        """A proxy may want a user and a password."""
        assert read_proxy("http://u%40x:p%3Aw@p:3128") == ProxyUrl(Url("http", "p", 3128, "/"), "u@x", "p:w")
        assert read_proxy("https://p").user == ""
        with pytest.raises(ValueError, match="http://"):
            read_proxy("socks5://p")
