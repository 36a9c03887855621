"""Drives Synapse, a Matrix server: `make`, `write N`, `migrate N`. Prints a line for each thing that it does, with what came of it.

APP_FOLDER holds its config, log and media, DATABASE_URL names its database, APP_VERSIONS the interpreters of an older and a newer
version: `migrate` changes to the newer, which alters the database when it starts.
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
from urllib.parse import quote, unquote, urlsplit

FOLDER = Path(os.environ["APP_FOLDER"])
CONFIG = FOLDER / "homeserver.yaml"
VERSION = FOLDER / "version"

YAML = """
server_name: example.com
report_stats: false
listeners: [{ port: %(port)d, bind_addresses: [127.0.0.1], type: http, resources: [{ names: [client] }] }]
database: { name: psycopg2, allow_unsafe_locale: true, args: { dsn: %(dsn)s, cp_min: 2, cp_max: 4 } }
log_config: %(folder)s/log.yaml
media_store_path: %(folder)s/media
signing_key_path: %(folder)s/signing.key
enable_registration: true
enable_registration_without_verification: true
macaroon_secret_key: a key of a test
form_secret: a key of a test
bcrypt_rounds: 4
trusted_key_servers: []
presence: { enabled: true }
background_updates: { sleep_enabled: false }
rc_message: { per_second: 10000, burst_count: 10000 }
rc_registration: { per_second: 10000, burst_count: 10000 }
rc_joins: { local: { per_second: 10000, burst_count: 10000 } }
rc_invites: { per_room: { per_second: 10000, burst_count: 10000 }, per_user: { per_second: 10000, burst_count: 10000 } }
rc_login: { address: { per_second: 10000, burst_count: 10000 }, account: { per_second: 10000, burst_count: 10000 } }
rc_room_creation: { per_second: 10000, burst_count: 10000 }
"""

LOG = """
version: 1
formatters: { line: { format: "%%(levelname)s %%(name)s %%(message)s" } }
handlers: { file: { class: logging.FileHandler, formatter: line, filename: %(folder)s/app.log } }
root: { level: WARNING, handlers: [file] }
disable_existing_loggers: false
"""

WAIT = """
import psycopg2, sys, time
connection = psycopg2.connect(sys.argv[1])
connection.autocommit = True
cursor = connection.cursor()
for _ in range(1200):
    cursor.execute("SELECT update_name FROM background_updates")
    left = cursor.fetchall()
    if not left:
        sys.exit()
    time.sleep(0.05)
sys.exit(f"its background updates do not end: {left}")
"""


class App:
    """A running Synapse."""

    def __enter__(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        url = urlsplit(os.environ["DATABASE_URL"])
        parts = {"host": unquote(url.hostname), "port": url.port, "user": url.username, "password": url.password, "dbname": url.path[1:]}
        self.dsn = " ".join(f"{name}='{value}'" for name, value in parts.items() if value)
        CONFIG.write_text(YAML % {"port": port, "dsn": json.dumps(self.dsn), "folder": FOLDER})
        (FOLDER / "log.yaml").write_text(LOG % {"folder": FOLDER})
        self.address = f"127.0.0.1:{port}"
        self.python = python = os.environ["APP_VERSIONS"].split(":")[int(VERSION.read_text())]
        if not (FOLDER / "signing.key").exists():
            subprocess.run([python, "-m", "synapse.app.homeserver", "-c", CONFIG, "--generate-keys"], check=True, cwd=FOLDER)
        output = open(FOLDER / "app.out", "ab")
        command = [python, "-m", "synapse.app.homeserver", "-c", CONFIG]
        self.process = subprocess.Popen(command, cwd=FOLDER, stdout=output, stderr=output)
        self.tokens = {}
        for _ in range(1200):
            try:
                with urllib.request.urlopen(f"http://{self.address}/health", timeout=5):
                    return self
            except OSError:
                if self.process.poll() is not None:
                    sys.exit(f"it ended: {(FOLDER / 'app.out').read_text()}")
                time.sleep(0.05)
        sys.exit("it does not start")

    def __exit__(self, *_):
        # What it writes in the background, and its migrations that go on there.
        time.sleep(1)
        subprocess.run([self.python, "-c", WAIT, self.dsn], check=True)
        self.process.terminate()
        self.process.wait()

    def ask(self, what, user, method, path, body=None, kind="application/json"):
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        headers = {"Content-Type": kind} | ({"Authorization": f"Bearer {self.tokens[user]}"} if user else {})
        request = urllib.request.Request(f"http://{self.address}/_matrix/{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                status, said = answer.status, answer.read()
        except urllib.error.HTTPError as error:
            status, said = error.code, error.read()
        print(f"{what}: {status}")
        try:
            return json.loads(said)
        except ValueError:
            return said


def make():
    VERSION.write_text("0")
    with App():
        print("made")


def migrate(_):
    VERSION.write_text("1")
    with App():
        print("migrated")


def write(number):
    with App() as app:
        names = [f"user{number}x{n}" for n in range(3)]
        for name in names:
            said = app.ask("register", None, "POST", "client/v3/register", {
                "username": name, "password": "a long password", "auth": {"type": "m.login.dummy"}, "initial_device_display_name": "a browser"})
            app.tokens[name] = said["access_token"]
            app.ask("name", name, "PUT", f"client/v3/profile/@{name}:example.com/displayname", {"displayname": f"{name} 'quoted' ☃"})
        first, second, third = names
        login = app.ask("login", None, "POST", "client/v3/login", {
            "type": "m.login.password", "identifier": {"type": "m.id.user", "user": first}, "password": "a long password"})
        app.tokens["other device"] = login["access_token"]
        app.ask("wrong password", None, "POST", "client/v3/login", {
            "type": "m.login.password", "identifier": {"type": "m.id.user", "user": first}, "password": "another"})
        room = app.ask("room", first, "POST", "client/v3/createRoom", {
            "preset": "public_chat", "name": f"Room {number}", "topic": "a topic", "room_alias_name": f"room{number}"})["room_id"]
        place = f"client/v3/rooms/{quote(room)}"
        app.ask("invite", first, "POST", f"{place}/invite", {"user_id": f"@{second}:example.com"})
        app.ask("join", second, "POST", f"{place}/join", {})
        app.ask("join by alias", third, "POST", f"client/v3/join/{quote(f'#room{number}:example.com')}", {})
        events = [app.ask("send", names[n % 3], "PUT", f"{place}/send/m.room.message/{number}-{n}", {
            "msgtype": "m.text", "body": f"message {n} of {number}, ☃ and \"quotes\""})["event_id"] for n in range(15)]
        app.ask("send again", first, "PUT", f"{place}/send/m.room.message/{number}-0", {"msgtype": "m.text", "body": "not sent twice"})
        app.ask("redact", first, "PUT", f"{place}/redact/{quote(events[3])}/r{number}", {"reason": "a reason"})
        app.ask("react", second, "PUT", f"{place}/send/m.reaction/x{number}", {
            "m.relates_to": {"rel_type": "m.annotation", "event_id": events[4], "key": "+"}})
        app.ask("read", second, "POST", f"{place}/receipt/m.read/{quote(events[-1])}", {})
        app.ask("typing", second, "PUT", f"{place}/typing/@{second}:example.com", {"typing": True, "timeout": 1000})
        app.ask("state", first, "PUT", f"{place}/state/m.room.topic", {"topic": "another topic"})
        app.ask("tag", first, "PUT", f"client/v3/user/@{first}:example.com/rooms/{quote(room)}/tags/u.work", {"order": 0.5})
        app.ask("data", first, "PUT", f"client/v3/user/@{first}:example.com/account_data/org.example", {"a": [1, None, {"b": "c"}]})
        app.ask("keys", first, "POST", "client/v3/keys/upload", {"one_time_keys": {}})
        app.ask("leave", third, "POST", f"{place}/leave", {})
        app.ask("not in the room", third, "PUT", f"{place}/send/m.room.message/late", {"msgtype": "m.text", "body": "late"})
        synced = app.ask("sync", second, "GET", "client/v3/sync?timeout=0")
        print(f"joined: {len(synced['rooms']['join'])}")
        found = app.ask("search", first, "POST", "client/v3/search", {
            "search_categories": {"room_events": {"search_term": "message", "filter": {"rooms": [room]}}}})
        print(f"found: {found['search_categories']['room_events']['count']}")
        messages = app.ask("messages", first, "GET", f"{place}/messages?dir=b&limit=100")
        print(f"messages: {len(messages['chunk'])}")
        app.ask("upload", first, "POST", "media/v3/upload?filename=a.txt", b"the content of a file", "text/plain")
        app.ask("logout", "other device", "POST", "client/v3/logout", {})
        app.ask("logged out", "other device", "GET", "client/v3/account/whoami")
        app.ask("deactivate", third, "POST", "client/v3/account/deactivate", {
            "auth": {"type": "m.login.password", "identifier": {"type": "m.id.user", "user": third}, "password": "a long password"}, "erase": True})


STEPS = {"make": make, "write": write, "migrate": migrate}
STEPS[sys.argv[1]](*map(int, sys.argv[2:]))
