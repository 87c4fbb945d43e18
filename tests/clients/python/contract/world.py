"""What the rows of the contract stand on: clients with good and bad credentials, a repository to read, and what the
published client must raise."""

import asyncio
import os
import re
import time
import uuid

import httpx
import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from pierre_storage import OP_NO_FORCE_PUSH, OP_NO_PUSH, ApiError, GitStorage, RefUpdateError

KEY = os.environ["PIERRE_PRIVATE_KEY"]
URLS = {"name": "acme", "api_base_url": os.environ["API_BASE_URL"], "storage_base_url": os.environ["STORAGE_BASE_URL"]}
STORE = GitStorage({"key": KEY, **URLS})
AUTHOR = {"name": "Sandbox worker", "email": "worker@example.com"}
BOT = {"name": "Bot", "email": "bot@example.com"}
ZERO = "0" * 40
NOBODY = "b" * 40
CLOSED = [{"pattern": "*", "ops": [OP_NO_PUSH]}]
FORWARD = [{"pattern": "*", "ops": [OP_NO_FORCE_PUSH]}]

# STRANGER signs with a key that the server does not know.
STRANGER = GitStorage({
    "key": ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()).decode(),
    **URLS,
})

# LIMITED asks a server that answers one request a second.
LIMITED = GitStorage({"key": os.environ["LIMITED_PRIVATE_KEY"], "name": "acme", "api_base_url": os.environ["LIMITED_API_BASE_URL"]})


# NARROW asks a server that has room for 24 KiB more and for no other repository, and no custom notes refs.
NARROW = GitStorage({"key": os.environ["NARROW_PRIVATE_KEY"], "name": "acme", "api_base_url": os.environ["NARROW_API_BASE_URL"]})


def noise(kib):
    return os.urandom(kib << 10)


def faulty(code):
    """A client of a server, or of a proxy before one, that answers everything with a status."""
    return GitStorage({"key": KEY, "name": "acme", "api_base_url": f"{os.environ['FAULTY_URL']}/{code}"})


def asked():
    return int(httpx.get(f"{os.environ['FAULTY_URL']}/asked").text)


def is_sha(text):
    return re.fullmatch("[0-9a-f]{40}", text) is not None


def holder(**claims):
    """A client that sends one token for everything."""
    now = int(time.time())
    payload = {"iss": "acme", "sub": "contract", "iat": now, "exp": now + 600, **claims}
    return GitStorage({"token": jwt.encode(payload, KEY, algorithm="ES256"), **URLS})


# api, status, update and plain say what a call must raise. The client raises its own ApiError from some methods and the
# HTTP library's error from others.
def api(code, pattern="", own=False):
    """An ApiError with a status; own means that the client words it itself and keeps no answer."""

    def check(err):
        assert type(err) is ApiError, repr(err)
        assert err.status_code == code, (err.status_code, err.message)
        assert re.search(pattern, err.message), err.message
        if not own:
            body = err.response.json()
            assert body["status"] == code and body["error"], body

    return check


def worded(code, pattern=""):
    """An ApiError whose message is the server's."""

    def check(err):
        api(code, pattern)(err)
        assert err.message == err.response.json()["error"], err.message

    return check


def status(code, pattern=""):
    def check(err):
        assert isinstance(err, httpx.HTTPStatusError), repr(err)
        assert err.response.status_code == code, (err.response.status_code, str(err))
        if pattern:
            assert re.search(pattern, err.response.json()["error"]), err.response.text

    return check


def update(reason, pattern=""):
    def check(err):
        assert type(err) is RefUpdateError, repr(err)
        assert err.reason == reason and err.status == reason, (err.reason, err.status, err.message)
        assert err.message and re.search(pattern, err.message), err.message

    return check


def over(reason, word, pattern=""):
    """A quota that has no room: the server's word, which the client knows or not."""

    def check(err):
        assert type(err) is RefUpdateError, repr(err)
        assert (err.reason, err.status) == (reason, word), (err.reason, err.status, err.message)
        assert re.search(pattern, err.message), err.message

    return check


def quota(code, kind):
    def check(err):
        kind(code)(err)
        body = err.response.json()
        assert body["code"] == "quota_exceeded" and body["limit"] > 0 and body["used"] >= 0 and body["needed"] > 0, body

    return check


def proxied(kind):
    """An answer that is no JSON."""

    def check(err):
        if kind is status:
            assert isinstance(err, httpx.HTTPStatusError) and err.response.status_code == 502, repr(err)
            return
        assert type(err) is ApiError and err.status_code == 502 and err.message, repr(err)

    return check


def moved(err):
    """A stale guard: it tells where the branch is."""
    update("precondition_failed")(err)
    assert is_sha(err.ref_update["new_sha"]), err.ref_update


def plain(pattern):
    def check(err):
        assert type(err) in (ValueError, RuntimeError, AssertionError, Exception), repr(err)
        assert re.search(pattern, str(err)), str(err)

    return check


async def fresh(**options):
    return await STORE.create_repo(id=f"contract/{uuid.uuid4()}", **options)


async def commit(repo, branch, files, **options):
    """Writes text files, or deletes those whose content is None."""
    builder = repo.create_commit(target_branch=branch, commit_message="Change " + ",".join(files), author=AUTHOR, **options)
    for path, content in files.items():
        builder = builder.delete_path(path) if content is None else builder.add_file_from_string(path, content)
    return await builder.send()


class History:
    """A repository with two commits on main, a branch beside them, and an ephemeral one."""

    @classmethod
    async def make(cls):
        h = cls()
        h.repo = await fresh()
        h.first = (await commit(h.repo, "main", {
            "README.md": "# Hello\nsecond line\nthird line\n", "src/app.js": "function app() {\n  return 1;\n}\n",
            "src/deep/util.js": "export const a = 1;\n",
        }))["commit_sha"]
        h.tip = (await commit(h.repo, "main", {"README.md": "# Hello\nchanged line\nthird line\n"}, committer=BOT))["commit_sha"]
        h.feature = (await commit(h.repo, "feature", {"feature.txt": "feature\n"}, base_branch="main"))["commit_sha"]
        h.session = (await commit(h.repo, "session", {"state.json": "{}\n"}, base_branch="main", ephemeral=True))["commit_sha"]
        return h


history = History.make
_shared = None


async def fixture():
    """A History that the rows only read."""
    global _shared
    _shared = _shared or await history()
    return _shared


async def names(repo, **options):
    return sorted(b["name"] for b in (await repo.list_branches(**options))["branches"])


async def pages(method, member, **options):
    """Reads a list to its end, one item a page."""
    items, cursor = [], None
    while True:
        page = await method(limit=1, cursor=cursor, **options)
        assert len(page[member]) == 1, page
        items += page[member]
        cursor = page.get("next_cursor")
        assert bool(cursor) == page["has_more"], page
        if not cursor:
            return items


async def until(check):
    """Repeats a check while a sync is under way."""
    end = time.monotonic() + 60
    while True:
        try:
            return await check()
        except Exception:
            if time.monotonic() > end:
                raise
            await asyncio.sleep(0.05)


class Row:
    """What is asked of one method. call makes its general failures."""

    def __init__(self, works, fails=None, call=None, kind=status, proxied=None):
        self.works, self.fails, self.call, self.kind, self.proxied = works, fails or {}, call, kind, proxied
