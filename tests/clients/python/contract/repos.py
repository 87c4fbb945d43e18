"""Repositories, their upstreams and credentials."""

import os
import uuid

from .world import CLOSED, NARROW, NOBODY, STORE, STRANGER, Row, api, commit, fixture, fresh, history, holder, names, pages, plain, quota, until

UPSTREAM = {"provider": "gitea", "owner": "team", "name": "app", "upstream_host": os.environ["UPSTREAM_HOST"], "default_branch": "trunk"}


async def follow():
    repo = await fresh(base_repo=UPSTREAM)

    async def synced():
        assert await names(repo) == ["trunk"]

    await until(synced)
    return repo


async def without_options():
    repo = await STORE.create_repo()
    assert repo.default_branch == "main"
    assert (await STORE.find_one(id=repo.id)).default_branch == "main"


async def named():
    name = f"team/{uuid.uuid4()}"
    repo = await STORE.create_repo(id=name, default_branch="trunk")
    assert repo.id == name
    assert (await STORE.find_one(id=name)).default_branch == "trunk"


async def fork():
    h = await fixture()
    made = await fresh(base_repo={"id": h.repo.id})
    assert await names(made) == ["feature", "main"]
    assert await names(made, ephemeral=True) == []
    await commit(made, "main", {"fork.txt": "x\n"}, expected_head_sha=h.tip)
    assert "fork.txt" not in (await h.repo.list_files())["paths"]
    one = await fresh(base_repo={"id": h.repo.id, "ref": "feature"})
    assert [b["head_sha"] for b in (await one.list_branches())["branches"]] == [h.feature]
    old = await fresh(base_repo={"id": h.repo.id, "sha": h.first})
    assert [b["head_sha"] for b in (await old.list_branches())["branches"]] == [h.first]


async def sync():
    repo = await follow()
    assert (await STORE.find_one(id=repo.id)).default_branch == "trunk"
    (listed,) = (await STORE.list_repos(q=repo.id))["repos"]
    assert listed["base_repo"]["provider"] == "gitea" and listed["base_repo"]["name"] == "app", listed


async def taken():
    await STORE.create_repo(id=(await fixture()).repo.id)


async def deleted():
    repo = await fresh()
    await STORE.delete_repo(id=repo.id)
    return repo.id


async def deleted_name():
    await STORE.create_repo(id=await deleted())


async def found():
    h = await fixture()
    repo = await STORE.find_one(id=h.repo.id)
    assert repo.id == h.repo.id and repo.default_branch == "main" and repo.created_at.endswith("Z")


async def nothing_found():
    assert await STORE.find_one(id="team/absent") is None
    assert await STORE.find_one(id=await deleted()) is None


async def listed():
    mark = str(uuid.uuid4())
    for n in (1, 2, 3):
        await STORE.create_repo(id=f"{mark}/r{n}")
    repos = await pages(STORE.list_repos, "repos", q=mark.upper())
    assert [r["url"] for r in repos] == [f"{mark}/r3", f"{mark}/r2", f"{mark}/r1"]
    assert all(r["repo_id"] and r["created_at"] and r["default_branch"] == "main" for r in repos)
    assert await STORE.list_repos(q="no such name") == {"repos": [], "next_cursor": None, "has_more": False}


async def delete():
    h = await history()
    gone = await STORE.delete_repo(id=h.repo.id)
    assert gone["repo_id"] and gone["message"]
    assert await STORE.find_one(id=h.repo.id) is None


async def delete_twice():
    await STORE.delete_repo(id=await deleted())


async def credential():
    repo = await fresh()
    made = await STORE.create_git_credential(repo_id=repo.id, username="robot", password="one")
    assert made["id"]
    return repo, made["id"]


async def second_credential():
    repo, _ = await credential()
    await STORE.create_git_credential(repo_id=repo.id, password="two")


async def blank_credential():
    await STORE.create_git_credential(repo_id=(await fresh()).id, password=" ")


async def update_credential():
    _, made = await credential()
    done = await STORE.update_git_credential(id=made, username="robot", password="two")
    assert done["id"] == made and done["created_at"]


async def blank_update():
    _, made = await credential()
    await STORE.update_git_credential(id=made, password="")


async def delete_credential():
    repo, made = await credential()
    assert await STORE.delete_git_credential(id=made) is None
    assert (await STORE.create_git_credential(repo_id=repo.id, password="two"))["id"] != made


async def delete_credential_twice():
    _, made = await credential()
    await STORE.delete_git_credential(id=made)
    await STORE.delete_git_credential(id=made)


async def pull():
    repo = await follow()
    assert await repo.pull_upstream() is None
    assert await repo.pull_upstream(ref="trunk") is None


async def pull_denied():
    await (await follow()).pull_upstream(ref_policies=CLOSED)


async def pull_nothing():
    await (await fresh()).pull_upstream()


def sync_fails(code, pattern=""):
    return plain(f"Pull Upstream failed: {code} (?s:.)*{pattern}")


def of_fixture(call):
    async def run():
        await call((await fixture()).repo.id)

    return run


def calls(method, **options):
    async def run():
        await method(**options)

    return run


async def forked_ref():
    await fresh(base_repo={"id": (await fixture()).repo.id, "ref": "absent"})


async def forked_sha():
    await fresh(base_repo={"id": (await fixture()).repo.id, "sha": NOBODY})


ORG = "org"
REPOS = {
    "GitStorage.create_repo": Row(
        {"without options": without_options, "named": named, "fork": fork, "sync from another host": sync},
        {
            "the name is taken": (api(409, "already exists", own=True), taken),
            "the name was deleted": (api(409, "already exists", own=True), deleted_name),
            "a bad name": (api(400), calls(STORE.create_repo, id="a//b")),
            "one too many": (quota(507, api), calls(NARROW.create_repo)),
            "a bad default branch": (api(400), calls(fresh, default_branch="a..b")),
            "a fork of nothing": (api(404), calls(fresh, base_repo={"id": "team/absent"})),
            "a fork of an unknown branch": (api(404), forked_ref),
            "a fork of an unknown commit": (api(404), forked_sha),
            "GitHub without an app": (api(412), calls(fresh, base_repo={"owner": "team", "name": "app"})),
            "a provider without a host": (api(400), calls(fresh, base_repo={"provider": "forgejo", "owner": "team", "name": "app"})),
            "a private host": (api(400), calls(fresh, base_repo={**UPSTREAM, "upstream_host": "127.0.0.1:1"})),
            "an unknown key": (api(401), calls(STRANGER.create_repo)),
            "the scope is missing": (api(403), calls(holder(repo="contract/other", scopes=["git:write"]).create_repo, id="contract/other")),
            "a token of the whole org": (api(403), calls(holder(repo=ORG, scopes=["repo:write"]).create_repo)),
        }),
    "GitStorage.find_one": Row({"what is there": found, "None for what is not": nothing_found}, {
        "an unknown key": (api(401), of_fixture(lambda r: STRANGER.find_one(id=r))),
        "the scope is missing": (api(403), of_fixture(lambda r: holder(repo=r, scopes=["repo:write"]).find_one(id=r))),
    }),
    "GitStorage.list_repos": Row({"newest first, by pages": listed}, {
        "a bad cursor": (api(400), calls(STORE.list_repos, cursor="x")),
        "a bad limit": (api(400), calls(STORE.list_repos, limit=0)),
        "an unknown key": (api(401), calls(STRANGER.list_repos)),
        "the scope is missing": (api(403), calls(holder(repo=ORG, scopes=["repo:write"]).list_repos)),
    }),
    "GitStorage.delete_repo": Row({"at once": delete}, {
        "never there": (api(404, "not found", own=True), calls(STORE.delete_repo, id="team/absent")),
        "deleted before": (api(409, "already deleted", own=True), delete_twice),
        "an unknown key": (api(401), of_fixture(lambda r: STRANGER.delete_repo(id=r))),
        "the scope is missing": (api(403), of_fixture(lambda r: holder(repo=r, scopes=["git:read", "git:write"]).delete_repo(id=r))),
    }),
    "GitStorage.create_git_credential": Row({"without an upstream": credential}, {
        "a second one": (api(409, "already exists", own=True), second_credential),
        "no password": (api(400), blank_credential),
        "no repository": (api(404), calls(STORE.create_git_credential, repo_id="team/absent", password="one")),
        "an unknown key": (api(401), of_fixture(lambda r: STRANGER.create_git_credential(repo_id=r, password="one"))),
        "the scope is missing": (api(403), of_fixture(lambda r: holder(repo=r, scopes=["git:write"]).create_git_credential(repo_id=r, password="one"))),
    }),
    "GitStorage.update_git_credential": Row({"by its id": update_credential}, {
        "unknown": (api(404, "Credential not found", own=True), calls(STORE.update_git_credential, id="cred_absent", password="two")),
        "no password": (api(400), blank_update),
        "an unknown key": (api(401), calls(STRANGER.update_git_credential, id="x", password="two")),
        "the scope is missing": (api(403), calls(holder(repo=ORG, scopes=["org:read"]).update_git_credential, id="x", password="two")),
    }),
    "GitStorage.delete_git_credential": Row({"and another one can be made": delete_credential}, {
        "deleted before": (api(404, "Credential not found", own=True), delete_credential_twice),
        "an unknown key": (api(401), calls(STRANGER.delete_git_credential, id="x")),
        "the scope is missing": (api(403), calls(holder(repo=ORG, scopes=["org:read"]).delete_git_credential, id="x")),
    }),
    "Repo.pull_upstream": Row(
        {"asks for a sync": pull},
        {"no upstream": (sync_fails(400), pull_nothing), "a policy": (sync_fails(403, "denied by policy"), pull_denied)},
        call=lambda repo: repo.pull_upstream(), kind=sync_fails, proxied=sync_fails(502)),
}
