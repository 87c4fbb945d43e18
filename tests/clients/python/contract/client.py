"""What the client does by itself: handles, remote URLs, claims and webhooks."""

import hashlib
import hmac
import os
import subprocess
import tempfile
import time

import jwt
import pierre_storage
from pierre_storage import OP_NO_PUSH, ApiError, GitStorage, RefUpdateError

from .world import CLOSED, KEY, STORE, URLS, Row, fixture, fresh, history, holder, plain


def git(*args):
    done = subprocess.run(["git", *args], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def heads(url):
    return [line.split("\trefs/heads/")[1] for line in git("ls-remote", "--heads", url).splitlines()]


async def pushes(repo, url, refspec):
    """Clones a repository, adds a commit and pushes it."""
    work = tempfile.mkdtemp(dir=os.getcwd())
    git("clone", "-q", await repo.get_remote_url(ttl=60), work)
    git("-C", work, "-c", "user.name=w", "-c", "user.email=w@example.com", "commit", "-q", "--allow-empty", "-m", "Push")
    git("-C", work, "push", url, refspec)


def pushing(method, refspec, **options):
    async def run():
        repo = (await history()).repo
        await pushes(repo, await getattr(repo, method)(ttl=60, **options), refspec)

    return run


async def remote():
    repo = (await history()).repo
    assert heads(await repo.get_remote_url(ttl=60)) == ["feature", "main"]
    await pushes(repo, await repo.get_remote_url(ttl=60), "HEAD:refs/heads/pushed")
    assert "pushed" in heads(await repo.get_remote_url()), "a token of a year"


async def ephemeral_remote():
    repo = (await history()).repo
    assert heads(await repo.get_ephemeral_remote_url(ttl=60)) == ["session"]
    await pushes(repo, await repo.get_ephemeral_remote_url(ttl=60), "HEAD:refs/heads/main")
    assert heads(await repo.get_ephemeral_remote_url(ttl=60)) == ["main", "session"]


async def import_remote():
    repo = (await history()).repo
    await pushes(repo, await repo.get_import_remote_url(ttl=60), "HEAD:refs/heads/imported")
    assert "imported" in heads(await repo.get_remote_url(ttl=60))


async def import_read():
    git("ls-remote", await (await fixture()).repo.get_import_remote_url(ttl=60))


async def no_repository():
    git("ls-remote", await STORE.repo(id="team/absent").get_remote_url(ttl=60))


async def construct():
    repo = (await fixture()).repo
    one = holder(repo=repo.id, scopes=["git:read", "git:write", "repo:write"]).repo(id=repo.id)
    assert (await one.list_files())["paths"]
    assert "main" in heads(await one.get_remote_url())


async def every_key():
    """Each kind of key makes the client sign differently."""
    for name, algorithm in (("RSA_PRIVATE_KEY", "RS256"), ("ED25519_PRIVATE_KEY", "EdDSA")):
        store = GitStorage({"key": os.environ[name], **URLS})
        url = await store.repo(id=(await fixture()).repo.id).get_remote_url(ttl=60)
        assert jwt.get_unverified_header(url.split(":")[2].split("@")[0])["alg"] == algorithm
        assert "main" in heads(url)
        assert await store.find_one(id=(await fixture()).repo.id)


async def slash():
    store = GitStorage({"key": KEY, **URLS, "api_base_url": URLS["api_base_url"] + "/"})
    repo = await store.find_one(id=(await fixture()).repo.id)
    assert (await repo.list_files())["paths"]


async def properties():
    repo = await fresh()
    assert repo.id.startswith("contract/") and repo.default_branch == "main" and repo.created_at


async def config():
    assert STORE.get_config()["api_base_url"] == URLS["api_base_url"]
    assert pierre_storage.create_client({"key": KEY, **URLS}).get_config() == STORE.get_config()


async def defaults():
    assert GitStorage.get_default_api_base_url("acme") == "https://api.acme.code.storage"
    assert GitStorage.get_default_storage_base_url("acme") == "acme.code.storage"


async def handle():
    assert (await STORE.repo(id=(await fixture()).repo.id).list_files())["paths"]


async def claims():
    assert pierre_storage.encode_refs_claim([{"pattern": "main", "ops": [OP_NO_PUSH]}, {"pattern": "*"}]) == [["main", ["no-push"]], ["*", []]]
    made = jwt.decode(pierre_storage.generate_jwt(KEY, "acme", "r", ttl=60, refs=CLOSED), options={"verify_signature": False})
    assert made["refs"] == [["*", ["no-push"]]] and made["scopes"] == ["git:write", "git:read"]


async def errors():
    assert ApiError("m", 404).status_code == 404 and RefUpdateError("m", "conflict").reason == "conflict"


SECRET, BODY = "s3cret", '{"ref":"refs/heads/main","before":"0","after":"1"}'
SIGNED = "t=1790000000,sha256=4d38e01ea6039c2094e98395081b85c0efd6af8ae2740ebfab403ded420cb4b8"


def signed():
    t = int(time.time())
    return f"t={t},sha256=" + hmac.new(SECRET.encode(), f"{t}.{BODY}".encode(), hashlib.sha256).hexdigest()


async def signature():
    assert pierre_storage.parse_signature_header(SIGNED)["timestamp"] == "1790000000"
    assert pierre_storage.validate_webhook_signature(BODY, SIGNED, SECRET, {"max_age_seconds": 0})["valid"]
    assert pierre_storage.validate_webhook_signature(BODY, signed(), SECRET)["valid"]


async def event():  # deliveries of the server: TestPublishedValidators
    got = pierre_storage.validate_webhook(BODY, {"x-pierre-event": "repo.sync.started", "x-pierre-signature": signed()}, SECRET)
    assert got["valid"] and got["event_type"] == "repo.sync.started", got


def invalid(method, *args):
    async def run():
        raise ValueError(str(getattr(pierre_storage, method)(*args)))

    return run


def constructing(**options):
    async def run():
        GitStorage(options)

    return run


async def bad_handle():
    STORE.repo(id=" ")


async def bad_key():
    pierre_storage.generate_jwt("x", "acme", "r")


CLIENT = {
    "GitStorage": Row({"with a token": construct, "with every kind of key": every_key, "with a slash after the URL": slash}, {"no name": (plain("name"), constructing(key=KEY)), "no key": (plain("key or a token"), constructing(name="acme"))}),
    "create_client": Row({"makes one": config}),
    "GitStorage.get_config": Row({"both URLs": config}),
    "GitStorage.get_default_api_base_url": Row({"by name": defaults}),
    "GitStorage.get_default_storage_base_url": Row({"by name": defaults}),
    "GitStorage.repo": Row({"without a request": handle}, {"no id": (plain("non-empty"), bad_handle)}),
    "Repo.id": Row({"of a new one": properties}),
    "Repo.default_branch": Row({"of a new one": properties}),
    "Repo.created_at": Row({"of a new one": properties}),
    "ApiError": Row({"carries the status": errors}),
    "RefUpdateError": Row({"carries the reason": errors}),
    "encode_refs_claim": Row({"as pairs": claims}),
    "generate_jwt": Row({"with policies": claims}, {"a bad key": (plain("key"), bad_key)}),
    "parse_signature_header": Row({"its parts": signature}, {"not a header": (plain("None"), invalid("parse_signature_header", "x"))}),
    "validate_webhook_signature": Row({"a known one": signature}, {
        "too old": (plain("old"), invalid("validate_webhook_signature", BODY, SIGNED.replace("t=17", "t=15"), SECRET)),
        "another body": (plain("Invalid signature"), invalid("validate_webhook_signature", BODY + " ", SIGNED, SECRET, {"max_age_seconds": 0})),
    }),
    "validate_webhook": Row({"an event it does not know": event}, {"no signature": (plain("Signature"), invalid("validate_webhook", BODY, {"x-pierre-event": "push"}, SECRET))}),
    "Repo.get_remote_url": Row({"to read and write": remote}, {
        "to read only": (plain("403"), pushing("get_remote_url", "HEAD:refs/heads/x", permissions=["git:read"])),
        "a policy": (plain("denied by policy"), pushing("get_remote_url", "HEAD:main", ref_policies=[{"pattern": "main", "ops": [OP_NO_PUSH]}])),
        "the older ops": (plain("denied by policy"), pushing("get_remote_url", "HEAD:main", ops=[OP_NO_PUSH])),
        "no repository": (plain("not found"), no_repository),
    }),
    "Repo.get_ephemeral_remote_url": Row({"to its own branches": ephemeral_remote}, {
        "a policy": (plain("denied by policy"), pushing("get_ephemeral_remote_url", "HEAD:main", ref_policies=[{"pattern": "refs/namespaces/ephemeral/refs/heads/mine"}, *CLOSED])),
    }),
    "Repo.get_import_remote_url": Row({"to push": import_remote}, {"to read": (plain("403"), import_read)}),
}
