"""An index behind a password, with one source that means harm: index.py FOLDER ADDRESS PORT-FILE fetch|plain."""

import base64
import hashlib
import http.server
import io
import os
import sys
import tarfile

SETUP = '''
import glob, json, os, socket, subprocess
SECRET = "hunter" + "2"
found = []

def look(path):
    try:
        with open(path, "rb") as file:
            return file.read(1 << 20)
    except OSError:
        return b""

for name, value in os.environ.items():
    if SECRET in value or name.lower().endswith("_proxy"):
        found.append("environment: " + name)
for path in glob.glob("/proc/[0-9]*/environ") + glob.glob("/proc/[0-9]*/cmdline"):
    if SECRET.encode() in look(path) or b"_proxy=" in look(path).lower():
        found.append(path)
for folder in ("/dev/stackforge", "/run", "/root", "/tmp", "/etc/pip.conf", "/etc/netrc"):
    for at, folders, files in os.walk(folder):
        if at.startswith("/dev/stackforge/source") or at.startswith("/dev/stackforge/tools"):
            continue
        for name in files:
            if SECRET.encode() in look(os.path.join(at, name)):
                found.append("file: " + os.path.join(at, name))
for path in ("index", "ca", "uv"):
    if os.path.exists("/dev/stackforge/" + path):
        found.append("there: " + path)
for entry in os.listdir("/dev/stackforge"):
    path = "/dev/stackforge/" + entry
    # The folders between mounts are gone with the step.
    if os.path.ismount(path) and os.path.isdir(path):
        try:
            open(path + "/poison", "w").close()
            found.append("written: " + path)
        except OSError:
            pass
for address in (("ADDRESS", PORT), ("1.1.1.1", 53)):
    try:
        socket.create_connection(address, 2)
        found.append("connected: %s:%s" % address)
    except OSError:
        pass
for name in ("localhost.example.com", "example.org"):
    try:
        socket.getaddrinfo(name, 443)
        found.append("resolved: " + name)
    except OSError:
        pass
try:
    socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)
    found.append("raw socket")
except OSError:
    pass

# What it would clone by itself is there, and its own to write.
if "FETCH" == "fetch":
    extra = os.environ.get("EVILBUILD_EXTRA", "/none")
    if look(extra + "/marker") != b"here\\n":
        found.append("no extra: " + extra)
    open(extra + "/built", "w").close()

os.makedirs("evilbuild", exist_ok=True)
with open("evilbuild/__init__.py", "w") as file:
    file.write("FOUND = %r\\n" % found)
from setuptools import setup
setup(name="evilbuild", version="1.0", packages=["evilbuild"])
'''


def sdist(path, address, port, fetch):
    text = SETUP.replace("FETCH", fetch).replace("ADDRESS", address).replace("PORT", str(port))
    files = {
        "setup.py": text,
        "PKG-INFO": "Metadata-Version: 2.1\nName: evilbuild\nVersion: 1.0\n",
        "pyproject.toml": '[build-system]\nrequires = ["setuptools", "wheel"]\nbuild-backend = "setuptools.build_meta"\n',
    }
    with tarfile.open(path, "w:gz") as archive:
        for name, text in files.items():
            info = tarfile.TarInfo("evilbuild-1.0/" + name)
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        wanted = "Basic " + base64.b64encode(b"ci:hunter2").decode()
        if self.headers.get("Authorization") != wanted:
            self.send_response(401)
            self.send_header("WWW-Authenticate", "Basic realm=x")
            self.end_headers()
            return
        name = "evilbuild-1.0.tar.gz"
        with open(os.path.join(folder, name), "rb") as file:
            content = file.read()
        if self.path.endswith(name):
            kind = "application/gzip"
        elif self.path.rstrip("/").endswith("/simple/evilbuild"):
            digest = hashlib.sha256(content).hexdigest()
            content = f'<!DOCTYPE html><a href="/files/{name}#sha256={digest}">{name}</a>'.encode()
            kind = "text/html"
        else:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


folder, address, port_file, fetch = sys.argv[1:]
server = http.server.ThreadingHTTPServer((address, 0), Handler)
sdist(os.path.join(folder, "evilbuild-1.0.tar.gz"), address, server.server_port, fetch)
with open(port_file + ".new", "w") as file:
    file.write(str(server.server_port))
os.rename(port_file + ".new", port_file)
server.serve_forever()
