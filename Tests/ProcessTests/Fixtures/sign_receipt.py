"""Makes an app receipt as the App Store does, with OpenSSL and Python alone.

    sign_receipt.py FOLDER [sha1|sha256] > receipt

Makes a root, an authority and a signer in FOLDER (root.pem is what has to be trusted), and prints the receipt's base64.
"""

import base64
import datetime
import pathlib
import subprocess
import sys

folder = pathlib.Path(sys.argv[1])
digest = sys.argv[2] if len(sys.argv) > 2 else "sha256"


def openssl(*arguments):
    return subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True).stdout


def certificate(name, extensions, issuer=None):
    openssl("genrsa", "-out", f"{name}.key", "2048")
    openssl("req", "-new", "-key", f"{name}.key", "-subj", f"/CN=Double {name}/O=Double", "-out", f"{name}.csr")
    (folder / f"{name}.ext").write_text("".join(line + "\n" for line in extensions))
    by = ["-CA", f"{issuer}.pem", "-CAkey", f"{issuer}.key", "-CAcreateserial"] if issuer else ["-signkey", f"{name}.key"]
    openssl("x509", "-req", "-in", f"{name}.csr", "-days", "30", f"-{digest}", "-extfile", f"{name}.ext", *by,
            "-out", f"{name}.pem")


def element(tag, content):
    if len(content) < 0x80:
        return bytes([tag, len(content)]) + content
    length = len(content).to_bytes((len(content).bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + content


def integer(value):
    return element(0x02, value.to_bytes(value.bit_length() // 8 + 1, "big"))


def utf8(text):
    return element(0x0C, text.encode())


def ia5(text):
    return element(0x16, text.encode())


def attributes(values):
    return element(0x31, b"".join(element(0x30, integer(kind) + integer(1) + element(0x04, value))
                                  for kind, value in values))


authority = ["basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign,cRLSign"]
certificate("root", authority)
certificate("authority", [*authority, "1.2.840.113635.100.6.2.1=DER:05:00"], "root")
certificate("signer", ["basicConstraints=critical,CA:FALSE", "keyUsage=critical,digitalSignature",
                       "1.2.840.113635.100.6.11.1=DER:05:00"], "authority")

# In a minute, because the certificates have only just been made.
now = (datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(minutes=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
purchase = attributes([
    (1701, integer(1)), (1702, utf8("monthly")), (1703, utf8("2000000700000002")), (1704, ia5(now)),
    (1705, utf8("2000000700000001")), (1706, ia5("2020-07-22T18:33:15Z")), (1707, integer(3)), (1708, ia5(now)),
    (1711, integer(2000000000000007)), (1712, ia5("")), (1713, integer(0)), (1719, integer(1)),
])
(folder / "payload").write_bytes(attributes([
    (8, ia5("")), (0, utf8("Production")), (1, integer(1234567890)), (2, utf8("com.example.app")), (3, utf8("42")),
    (4, b"opaque bytes 4.."), (5, b"hash hash hash hash "), (12, ia5(now)), (17, purchase), (19, utf8("1.0")),
]))
(folder / "others.pem").write_bytes((folder / "authority.pem").read_bytes() + (folder / "root.pem").read_bytes())
receipt = openssl("cms", "-sign", "-binary", "-nodetach", "-noattr", "-nosmimecap", "-md", digest, "-in", "payload",
                  "-signer", "signer.pem", "-inkey", "signer.key", "-certfile", "others.pem", "-outform", "DER")
print(base64.b64encode(receipt).decode())
