"""A certificate authority, and certificates for the nodes and a coordinator: the files that `--tls` reads."""

from __future__ import annotations

import datetime
import importlib.util
import ipaddress
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from simcluster.errors import Problem, UsageError
from simcluster_backends.sockets.net.tls import AUTHORITY, COORDINATOR, LAUNCHER, certificate_file, key_file, uri_of

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

VALID_FROM = -datetime.timedelta(hours=1)
"""Relative to the time of creation: clocks differ."""
HOST = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
LOCAL = ("localhost", "127.0.0.1", "::1")


def make_certificates(folder: Path, names: Sequence[str], days: int, hosts: Sequence[str] = ()) -> list[Path]:
    """Create whatever *folder* lacks: an authority, and certificates for *names*, the launcher and a coordinator.

    The coordinator's also names its *hosts*, for browsers. Return the new files; keys have mode 0600. Raise UsageError
    listing every problem before anything is written.
    """
    problems = _problems(folder, names, days, hosts)
    if problems:
        raise UsageError(problems)
    made: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        authority, key = _authority(folder, days, made)
        for name in (LAUNCHER, COORDINATOR, *names):
            if not certificate_file(folder, name).exists():
                called = (*LOCAL, *hosts) if name == COORDINATOR else ()
                _issue(folder, name, called, authority, key, days, made)
    except OSError as error:
        raise UsageError(Problem("folder", f"{folder} ({error.strerror})", "a folder that can be written to")) from None
    except ValueError as error:
        raise UsageError(Problem("folder", f"{folder} ({error})", "one with our authority, or none")) from None
    return made


def _problems(folder: Path, names: Sequence[str], days: int, hosts: Sequence[str]) -> list[Problem]:
    problems = []
    if importlib.util.find_spec("cryptography") is None:
        expected = "it to be installed: pip install 'simcluster[tls]'"
        problems.append(Problem("keys init", "no cryptography", expected))
    if folder.exists() and not folder.is_dir():
        problems.append(Problem("folder", str(folder), "a folder, or none yet"))
    if not 1 <= days <= 3650:
        problems.append(Problem("--days", str(days), "1 to 3650"))
    for name in (LAUNCHER, COORDINATOR):
        if name in names:
            problems.append(Problem("topology", f"a node called {name}", f"another name: this one is the {name}'s"))
    for host in hosts:
        if not HOST.fullmatch(host) and not _is_address(host):
            problems.append(Problem("--host", repr(host), "a name or an address, without a port"))
    if hosts and (there := certificate_file(folder, COORDINATOR)).exists():
        problems.append(Problem("--host", f"{there} already", "none, or that file to be removed and made again"))
    return problems


def _authority(folder: Path, days: int, made: list[Path]) -> tuple[x509.Certificate, EllipticCurvePrivateKey]:
    """Return the authority in *folder*, or a new one. Raise ValueError if only half of it is there."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    certificate, key = certificate_file(folder, AUTHORITY), key_file(folder, AUTHORITY)
    if certificate.exists():
        if not key.exists():
            raise ValueError(f"{certificate.name} without {key.name}")
        loaded = load_pem_private_key(key.read_bytes(), None)
        if not isinstance(loaded, ec.EllipticCurvePrivateKey):
            raise ValueError(f"{key.name} is another kind of key")
        return x509.load_pem_x509_certificate(certificate.read_bytes()), loaded
    own = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "simcluster authority")])
    usage = _usage(signs=False, is_authority=True)
    signed = (
        _builder(name, name, own, days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(own.public_key()), critical=False)
        .sign(own, SHA256())
    )
    _write(certificate, key, signed, own, made)
    return signed, own


def _issue(
    folder: Path,
    name: str,
    hosts: Sequence[str],
    authority: x509.Certificate,
    key: EllipticCurvePrivateKey,
    days: int,
    made: list[Path],
) -> None:
    """Create a certificate that identifies *name*, at either end of a connection, reachable at *hosts*."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.x509.oid import ExtendedKeyUsageOID

    own = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    names = [x509.UniformResourceIdentifier(uri_of(name)), *map(_host, hosts)]
    both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    signed = (
        _builder(subject, authority.subject, own, days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=True)
        .add_extension(_usage(signs=True, is_authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(both), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
        .sign(key, SHA256())
    )
    _write(certificate_file(folder, name), key_file(folder, name), signed, own, made)


def _host(host: str) -> x509.GeneralName:
    from cryptography import x509

    return x509.IPAddress(ipaddress.ip_address(host)) if _is_address(host) else x509.DNSName(host)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _builder(subject: x509.Name, issuer: x509.Name, own: EllipticCurvePrivateKey, days: int) -> x509.CertificateBuilder:
    from cryptography import x509

    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(own.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + VALID_FROM)
        .not_valid_after(now + VALID_FROM + datetime.timedelta(days=days))
    )


def _usage(*, signs: bool, is_authority: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=signs,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _write(
    certificate: Path, key: Path, signed: x509.Certificate, own: EllipticCurvePrivateKey, made: list[Path]
) -> None:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    secret = own.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    for path, content, mode in ((key, secret, 0o600), (certificate, signed.public_bytes(Encoding.PEM), 0o644)):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
        except OSError:  # a full disk: leave no half of a pair
            for half in (path, key):
                half.unlink(missing_ok=True)
            raise
        made.append(path)
