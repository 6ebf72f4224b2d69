"""Make the files that `--tls` reads: a certificate authority (CA), and certificates and keys of the
nodes, the launcher and a coordinator.
"""

from __future__ import annotations

import datetime
import importlib.util
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from simcluster.errors import Problem, UsageError, raise_all
from simcluster.process.installed import install_extra
from simcluster_backends.sockets.net.addresses import ip_of
from simcluster_backends.sockets.net.tls import AUTHORITY, COORDINATOR, LAUNCHER, URI, certificate_file, key_file

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

    Signer = tuple[x509.Name, EllipticCurvePrivateKey]

VALID_FROM = -datetime.timedelta(hours=1)
"""The start of a certificate's validity, relative to its creation: machines' clocks may differ."""
HOST = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
LOCAL = ("localhost", "127.0.0.1", "::1")


def make_certificates(folder: Path, names: Sequence[str], days: int, hosts: Sequence[str] = ()) -> list[Path]:
    """Create the missing files in *folder*; return them. Keys have mode 0600.

    They hold certificates and keys, valid for *days*, of a CA, of the nodes *names*, of the
    launcher and of a coordinator. The coordinator's certificate also names loopback and *hosts*,
    for browsers. Raise UsageError with all problems before anything is written.
    """
    problems = _problems(folder, names, days, hosts)
    raise_all(problems)
    made: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        authority = _authority(folder, days, made)
        for name in (LAUNCHER, COORDINATOR, *names):
            if not certificate_file(folder, name).exists():
                called = (*LOCAL, *hosts) if name == COORDINATOR else ()
                made += _issue(folder, name, called, authority, days)
    except OSError as error:
        raise UsageError("folder", f"{folder} ({error.strerror})", "a folder that can be written to") from None
    except ValueError as error:
        raise UsageError("folder", f"{folder} ({error})", "one with our authority, or none") from None
    return made


def _problems(folder: Path, names: Sequence[str], days: int, hosts: Sequence[str]) -> list[Problem]:
    problems = []
    if importlib.util.find_spec("cryptography") is None:
        problems.append(Problem("keys init", "no cryptography", f"it to be installed: {install_extra('tls')}"))
    if folder.exists() and not folder.is_dir():
        problems.append(Problem("folder", str(folder), "a folder, or none yet"))
    if not 1 <= days <= 3650:
        problems.append(Problem("--days", str(days), "1 to 3650"))
    for name in (LAUNCHER, COORDINATOR):
        if name in names:
            problems.append(Problem("topology", f"a node called {name}", f"another name: this one is the {name}'s"))
    for host in hosts:
        if not HOST.fullmatch(host) and ip_of(host) is None:
            problems.append(Problem("--host", repr(host), "a name or an address, without a port"))
    if hosts and (there := certificate_file(folder, COORDINATOR)).exists():
        problems.append(Problem("--host", f"{there} already", "none, or that file to be removed and made again"))
    return problems


def _authority(folder: Path, days: int, made: list[Path]) -> Signer:
    """Return the CA in *folder*, or make one. Raise ValueError if its key is missing or
    unusable.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    certificate, key = certificate_file(folder, AUTHORITY), key_file(folder, AUTHORITY)
    if certificate.exists():
        if not key.exists():
            raise ValueError(f"{certificate.name} without {key.name}")
        loaded = load_pem_private_key(key.read_bytes(), None)
        if not isinstance(loaded, ec.EllipticCurvePrivateKey):
            raise ValueError(f"{key.name} is another kind of key")
        return x509.load_pem_x509_certificate(certificate.read_bytes()).subject, loaded
    own = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "simcluster authority")])
    extensions = [
        (x509.BasicConstraints(ca=True, path_length=0), True),
        (_usage(is_authority=True), True),
        (x509.SubjectKeyIdentifier.from_public_key(own.public_key()), False),
    ]
    made += _sign(folder, AUTHORITY, name, own, extensions, (name, own), days)
    return name, own


def _issue(folder: Path, name: str, hosts: Sequence[str], authority: Signer, days: int) -> list[Path]:
    """Create a certificate of *name*, for both ends of connections and for *hosts*.

    Return the files.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID

    own = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    places = [x509.DNSName(host) if (ip := ip_of(host)) is None else x509.IPAddress(ip) for host in hosts]
    extensions = [
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (x509.SubjectAlternativeName([x509.UniformResourceIdentifier(URI + name), *places]), True),
        (_usage(is_authority=False), True),
        (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), False),
        (x509.AuthorityKeyIdentifier.from_issuer_public_key(authority[1].public_key()), False),
    ]
    return _sign(folder, name, subject, own, extensions, authority, days)


def _usage(*, is_authority: bool) -> x509.KeyUsage:
    """Return the permitted uses of a key: a CA signs certificates, a node signs handshakes."""
    from cryptography import x509

    never = "content_commitment key_encipherment data_encipherment key_agreement encipher_only decipher_only"
    others = dict.fromkeys(never.split(), False)
    return x509.KeyUsage(not is_authority, key_cert_sign=is_authority, crl_sign=is_authority, **others)


def _sign(
    folder: Path,
    name: str,
    subject: x509.Name,
    own: EllipticCurvePrivateKey,
    extensions: Sequence[tuple[x509.ExtensionType, bool]],
    signer: Signer,
    days: int,
) -> list[Path]:
    """Write the key *own* of *name* and its certificate, signed by *signer*; return the files.

    Each of *extensions* is (extension, whether it is critical).
    """
    from cryptography import x509
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    begin = datetime.datetime.now(datetime.UTC) + VALID_FROM
    builder = x509.CertificateBuilder(signer[0], subject, own.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(begin).not_valid_after(begin + datetime.timedelta(days=days))
    for extension, is_critical in extensions:
        builder = builder.add_extension(extension, critical=is_critical)
    signed = builder.sign(signer[1], SHA256()).public_bytes(Encoding.PEM)
    secret = own.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    certificate, key = certificate_file(folder, name), key_file(folder, name)
    for path, content, mode in ((key, secret, 0o600), (certificate, signed, 0o644)):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
        except OSError:  # such as a full disk: leave neither half of the pair
            for half in (path, key):
                half.unlink(missing_ok=True)
            raise
    return [key, certificate]
