"""A stand-in of the Hugging Face hub on 127.0.0.1: those parts of its HTTP interface that we use.

It keeps models in memory and answers as the hub does. Weights and pictures are stored by Git LFS,
all else by Git; what the hub does instead where hf_xet is installed is not here.
"""

import base64
import hashlib
import json
import re
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import unquote, urlsplit

import yaml

TOKEN = "hf_stand_in"
LARGE = (".safetensors", ".png", ".gif")
SHA = "0123456789abcdef0123456789abcdef01234567"


class Hub:
    """The models there are, {name: {path: content}}, and where they are served."""

    def __init__(self):
        self.models: dict[str, dict[str, bytes]] = {}
        self.sizes: dict[str, int] = {}  # of files, where the hub is to lie about them
        self.stored: dict[str, bytes] = {}  # by LFS, {SHA-256: content}
        self.asked: list[str] = []
        self.url = ""


@contextmanager
def serving():
    hub = Hub()
    handler = type("Handler", (Answers,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Answers(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def answer(self, content, status=200, **headers):
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Length": len(body), **headers}.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def missing(self, code="RepoNotFound"):
        self.answer({"error": "not found"}, 404, X_Error_Code=code)

    def do_GET(self):
        path = unquote(urlsplit(self.path).path)
        self.hub.asked.append(f"{self.command} {path}")
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)(/revision/.*)?", path):
            self.describe(found[1])
        elif found := re.fullmatch(rf"/([^/]+/[^/]+)/resolve/{SHA}/(.+)", path):
            content = self.hub.models.get(found[1], {}).get(found[2])
            if content is None:
                self.missing("EntryNotFound")
                return
            etag = f'"{hashlib.sha1(content).hexdigest()}"'
            self.answer(content, X_Repo_Commit=SHA, ETag=etag)
        else:
            self.missing()

    do_HEAD = do_GET

    def describe(self, name):
        if name not in self.hub.models:
            self.missing()
            return
        size = lambda path, content: self.hub.sizes.get(path, len(content))
        files = self.hub.models[name].items()
        siblings = [{"rfilename": path, "size": size(path, x), "blobId": "0"} for path, x in files]
        self.answer({"id": name, "modelId": name, "sha": SHA, "siblings": siblings})

    def do_POST(self):
        path = unquote(urlsplit(self.path).path)
        self.hub.asked.append(f"POST {path}")
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if path == "/api/validate-yaml":
            _, front, _ = json.loads(body)["content"].split("---\n", 2)
            yaml.safe_load(front)
            self.answer({"errors": [], "warnings": []})
        elif self.headers["Authorization"] != f"Bearer {TOKEN}":
            self.answer({"error": "Invalid credentials"}, 401)
        elif path == "/api/repos/create":
            told = json.loads(body)
            name = f"{told['organization']}/{told['name']}"
            status = 409 if name in self.hub.models else 200
            self.hub.models.setdefault(name, {".gitattributes": b"*.safetensors filter=lfs\n"})
            self.answer({"url": f"{self.hub.url}/{name}", "id": name}, status)
        elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/preupload/main", path):
            files = [x["path"] for x in json.loads(body)["files"]]
            mode = lambda file: "lfs" if file.endswith(LARGE) else "regular"
            told = [{"path": x, "uploadMode": mode(x), "shouldIgnore": False} for x in files]
            self.answer({"files": told})
        elif path.endswith(".git/info/lfs/objects/batch"):
            objects = [
                {**x, "actions": {"upload": {"href": f"{self.hub.url}/lfs/{x['oid']}"}}}
                for x in json.loads(body)["objects"]
            ]
            self.answer({"transfer": "basic", "objects": objects})
        elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/commit/main", path):
            self.commit(self.hub.models[found[1]], map(json.loads, body.splitlines()))
            url = f"{self.hub.url}/{found[1]}/commit/{SHA}"
            self.answer({"success": True, "commitOid": SHA, "commitUrl": url})
        else:
            self.missing()

    def do_PUT(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.hub.stored[hashlib.sha256(body).hexdigest()] = body
        self.answer({})

    def commit(self, files, operations):
        for operation in operations:
            value = operation["value"]
            if operation["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif operation["key"] == "lfsFile":
                files[value["path"]] = self.hub.stored[value["oid"]]
            elif operation["key"] == "deletedFile":
                del files[value["path"]]
