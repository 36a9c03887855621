"""Drives PocketBase: `make`, `write N`, `migrate N`. Prints a line for each thing that it does, with what came of it.

APP_FOLDER holds its log and data, DATABASE_FILE is its database, APP_PROGRAM the program. Its collections are tables, which it
makes, alters and drops when they are changed by HTTP: its own migrations.
"""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

FOLDER = Path(os.environ["APP_FOLDER"])
DATA = FOLDER / "pb_data"
WHO = ("admin@example.com", "a long password")


class App:
    """A running PocketBase, and one who is logged in."""

    def __enter__(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = "127.0.0.1:%d" % free.getsockname()[1]
        log = open(FOLDER / "app.log", "ab")
        command = [os.environ["APP_PROGRAM"], "serve", "--dir", DATA, "--http", self.address]
        self.process = subprocess.Popen(command, stdout=log, stderr=log)
        self.token = None
        for _ in range(500):
            try:
                if self.call("GET", "/api/health")[0] == 200:
                    break
            except OSError:
                time.sleep(0.02)
        _, said = self.call("POST", "/api/collections/_superusers/auth-with-password", {"identity": WHO[0], "password": WHO[1]})
        self.token = said["token"]
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"} | ({"Authorization": self.token} if self.token else {})
        request = urllib.request.Request(f"http://{self.address}{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read() or b"null")

    def ask(self, what, method, path, body=None):
        status, said = self.call(method, path, body)
        print(f"{what}: {status}" + (f" {said.get('data')}" if status >= 400 else ""))
        return said


def text(name, **more):
    return {"name": name, "type": "text", **more}


def make():
    DATA.mkdir()
    (DATA / "data.db").symlink_to(os.environ["DATABASE_FILE"])
    log = open(FOLDER / "app.log", "ab")
    program = os.environ["APP_PROGRAM"]
    subprocess.run([program, "superuser", "upsert", *WHO, "--dir", DATA], check=True, stdout=log, stderr=log)
    with App() as app:
        open_to_all = {rule: "" for rule in ("listRule", "viewRule", "createRule", "updateRule", "deleteRule")}
        app.ask("authors", "POST", "/api/collections", {"name": "authors", "type": "base", **open_to_all, "fields": [
            text("name", required=True), {"name": "born", "type": "date"}, {"name": "site", "type": "url"}]})
        app.ask("posts", "POST", "/api/collections", {"name": "posts", "type": "base", **open_to_all, "fields": [
            text("title", required=True, max=80), {"name": "body", "type": "editor"}, {"name": "votes", "type": "number", "onlyInt": True},
            {"name": "score", "type": "number"}, {"name": "live", "type": "bool"}, {"name": "meta", "type": "json"},
            {"name": "kind", "type": "select", "values": ["news", "essay"], "maxSelect": 1},
            {"name": "tags", "type": "select", "values": ["a", "b", "c"], "maxSelect": 3},
            {"name": "author", "type": "relation", "collectionId": app.call("GET", "/api/collections/authors")[1]["id"],
             "cascadeDelete": True, "maxSelect": 1},
            {"name": "made", "type": "autodate", "onCreate": True}],
            "indexes": ["CREATE UNIQUE INDEX idx_posts_title ON posts (title)"]})


def write(number):
    with App() as app:
        authors = [app.ask("author", "POST", "/api/collections/authors/records", {
            "name": f"Ann {number} 'quoted' ☃ {n}", "born": "1990-02-28 12:00:00.000Z", "site": "https://example.com"})["id"] for n in range(4)]
        for n in range(24):
            post = app.ask("post", "POST", "/api/collections/posts/records", {
                "title": f"post {number} {n}", "headline": f"post {number} {n}", "body": "<p>body</p>", "votes": n * 1000003, "score": n / 7, "live": n % 2 == 0,
                "meta": {"n": n, "deep": [1, None, "x"]}, "kind": "news", "tags": ["a", "c"], "author": authors[n % 4]})
            if n % 3 == 0:
                app.ask("edit", "PATCH", f"/api/collections/posts/records/{post['id']}", {
                    "votes+": 5, "meta": None, "tags+": "b", "live": True, "title": f"edited {number} {n}", "headline": f"edited {number} {n}"})
            if n % 5 == 0:
                app.ask("delete", "DELETE", f"/api/collections/posts/records/{post['id']}")
        app.ask("taken or not unique any more", "POST", "/api/collections/posts/records", {
            "title": f"post {number} 2", "headline": f"post {number} 2", "author": authors[0]})
        app.ask("an author and all posts", "DELETE", f"/api/collections/authors/records/{authors[1]}")
        app.ask("user", "POST", "/api/collections/users/records", {
            "email": f"user{number}@example.com", "password": "a long password", "passwordConfirm": "a long password", "name": "U"})
        app.ask("login", "POST", "/api/collections/users/auth-with-password", {
            "identity": f"user{number}@example.com", "password": "a long password"})
        app.ask("batch", "PATCH", "/api/settings", {"batch": {"enabled": True, "maxRequests": 50}})
        app.ask("all or nothing", "POST", "/api/batch", {"requests": [
            {"method": "POST", "url": "/api/collections/authors/records", "body": {"name": "kept"}},
            {"method": "POST", "url": "/api/collections/authors/records", "body": {"name": ""}}]})
        app.ask("several", "POST", "/api/batch", {"requests": [
            {"method": "POST", "url": "/api/collections/authors/records", "body": {"name": f"batch {number} {n}"}} for n in range(20)]})
        for name in ("authors", "posts", "users"):
            found = app.ask(f"list {name}", "GET", f"/api/collections/{name}/records?perPage=500&sort=id")
            print(f"{name}: {found['totalItems']}")


def migrate(number):
    with App() as app:
        posts = app.call("GET", "/api/collections/posts")[1]
        if number == 1:
            for field in posts["fields"]:
                if field["name"] == "title":
                    field["name"] = "headline"
                if field["name"] == "kind":
                    field["values"].append("poem")
            posts["fields"].append({"name": "words", "type": "number"})
            posts["indexes"] = ["CREATE INDEX idx_posts_headline ON posts (headline, live)"]
        else:
            posts["fields"] = [field for field in posts["fields"] if field["name"] not in ("score", "meta")]
        app.ask(f"migrate {number}", "PATCH", "/api/collections/posts", {"fields": posts["fields"], "indexes": posts["indexes"]})
        if number == 2:
            app.ask("rename a collection", "PATCH", "/api/collections/authors", {"name": "writers"})
            app.ask("and back", "PATCH", "/api/collections/writers", {"name": "authors"})


STEPS = {"make": make, "write": write, "migrate": migrate}
STEPS[sys.argv[1]](*map(int, sys.argv[2:]))
