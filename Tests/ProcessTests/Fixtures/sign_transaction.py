"""Signs a transaction as the App Store does, with OpenSSL and Python alone.

    sign_transaction.py FOLDER < payload

Makes a root, an authority and a signer in FOLDER (root.pem is what has to be trusted), and prints a compact JWS.
"$NOW" in the payload is the time of the signature, in milliseconds: the certificates are valid from shortly before it.
"""

import base64
import json
import pathlib
import subprocess
import sys
import time

folder = pathlib.Path(sys.argv[1])


def openssl(*arguments, data=None):
    return subprocess.run(["openssl", *arguments], cwd=folder, input=data, check=True, capture_output=True).stdout


def certificate(name, curve, extensions, issuer=None):
    openssl("ecparam", "-name", curve, "-genkey", "-noout", "-out", f"{name}.key")
    openssl("req", "-new", "-key", f"{name}.key", "-subj", f"/CN=Double {name}/O=Double", "-out", f"{name}.csr")
    (folder / f"{name}.ext").write_text("".join(line + "\n" for line in extensions))
    by = ["-CA", f"{issuer}.pem", "-CAkey", f"{issuer}.key", "-CAcreateserial"] if issuer else ["-signkey", f"{name}.key"]
    openssl("x509", "-req", "-in", f"{name}.csr", "-days", "30", "-sha384", "-extfile", f"{name}.ext", *by,
            "-out", f"{name}.pem")
    return base64.b64encode(openssl("x509", "-in", f"{name}.pem", "-outform", "DER")).decode()


def url(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


authority = ["basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign,cRLSign"]
root = certificate("root", "secp384r1", authority)
intermediate = certificate("authority", "secp384r1", [*authority, "1.2.840.113635.100.6.2.1=DER:05:00"], "root")
leaf = certificate("signer", "prime256v1",
                   ["basicConstraints=critical,CA:FALSE", "keyUsage=critical,digitalSignature",
                    "1.2.840.113635.100.6.11.1=DER:05:00"], "authority")

header = json.dumps({"alg": "ES256", "x5c": [leaf, intermediate, root]}, separators=(",", ":")).encode()
payload = sys.stdin.buffer.read().replace(b'"$NOW"', b"%d" % (time.time() * 1000))
signed = f"{url(header)}.{url(payload)}"
der = openssl("dgst", "-sha256", "-sign", "signer.key", data=signed.encode())


def integer(at):
    """The number that begins at a place of the DER, in 32 bytes, and the place after it."""
    length = der[at + 1]
    return int.from_bytes(der[at + 2:at + 2 + length], "big").to_bytes(32, "big"), at + 2 + length


r, after = integer(2)
s, _ = integer(after)
print(f"{signed}.{url(r + s)}")
