"""Commits in every form."""

import asyncio

from pierre_storage import OP_VERIFY_SIG
from pierre_storage.types import GitFileMode

from .reading import content, text
from .world import AUTHOR, BOT, CLOSED, NARROW, NOBODY, STRANGER, ZERO, RefUpdateError, Row, commit, fixture, fresh, history, is_sha, moved, names, noise, over, plain, update


def begin(repo, **options):
    return repo.create_commit(**{"target_branch": "main", "commit_message": "Change", "author": AUTHOR, **options})


def building(**options):
    async def run():
        begin((await fixture()).repo, **options)

    return run


def sending(path="x", **options):
    async def run():
        await begin((await fixture()).repo, **options).add_file_from_string(path, "x").send()

    return run


async def create_commit():
    h = await history()
    done = await begin(
        h.repo, target_branch="next", base_branch="main", expected_head_sha=h.tip, commit_message=" Message \n", committer=BOT,
        ephemeral=False, ephemeral_base=False, ttl=60,
    ).add_file_from_string("n", "n").send()
    assert done["target_branch"] == "next" and done["ref_update"]["old_sha"] == ZERO
    c = (await h.repo.get_commit(sha=done["commit_sha"]))["commit"]
    assert (c["message"], c["committer_name"], c["parent_shas"]) == ("Message", "Bot", [h.tip])
    upon = await begin(h.repo, target_branch="session-2", base_branch="session", ephemeral=True, ephemeral_base=True).add_file("n", "n").send()
    assert (await h.repo.get_commit(sha=upon["commit_sha"]))["commit"]["parent_shas"] == [h.session]
    assert await names(h.repo) == ["feature", "main", "next"]


async def sources():
    async def chunks():
        yield "a"
        yield b"b"

    repo = await fresh()
    builder = begin(repo)
    given = {"string": "text", "bytes": b"bytes", "array": bytearray(b"array"), "view": memoryview(b"view"), "list": ["a", b"b", "c"], "chunks": chunks(), "empty": b""}
    for name, source in given.items():
        builder.add_file(name, source)
    done = await builder.add_file("/run", "#!/bin/sh\n", mode=GitFileMode.EXECUTABLE).send()
    assert done["blob_count"] == 8, done
    assert (await text(repo, "list"), await text(repo, "chunks"), await text(repo, "empty"), await text(repo, "view")) == ("abc", "ab", "", "view")


async def large():
    repo = await fresh()
    data = b"cairn" * (9 << 20 // 5) + b"x" * ((9 << 20) + 1)
    await begin(repo).add_file("large", data).add_file("exact", data[: 4 << 20]).send()
    assert await content(await repo.get_file_stream(path="large")) == data
    assert (await repo.head_file(path="exact"))["size"] == 4 << 20


async def encodings():
    repo = await fresh()
    await begin(repo).add_file_from_string("utf8", "ü").add_file_from_string("latin1", "ü", encoding="latin-1").send()
    assert await content(await repo.get_file_stream(path="latin1")) == b"\xfc"
    assert await text(repo, "utf8") == "ü"


async def delete():
    h = await history()
    await begin(h.repo).delete_path("README.md").send()
    await begin(h.repo).delete_path("src/deep").delete_path("absent").add_file("new", "x").send()
    assert (await h.repo.list_files())["paths"] == ["new", "src/app.js"]


async def delete_nothing():
    await begin((await fixture()).repo).delete_path("absent").send()


def adding(method, *args):
    async def run():
        getattr(begin((await fixture()).repo), method)(*args)

    return run


async def send():
    repo = await fresh()
    done = await begin(repo).add_file("a", "a").send()
    assert is_sha(done["commit_sha"]) and is_sha(done["tree_sha"]) and done["pack_bytes"] > 0
    assert (done["target_branch"], done["blob_count"]) == ("main", 1)
    assert done["ref_update"] == {"branch": "main", "old_sha": ZERO, "new_sha": done["commit_sha"]}
    again = await begin(repo, expected_head_sha=done["commit_sha"]).add_file("b", "b").send()
    assert again["ref_update"]["old_sha"] == done["commit_sha"]


async def two_writers():
    h = await history()
    both = await asyncio.gather(*(begin(h.repo, expected_head_sha=h.tip).add_file(n, n).send() for n in "ab"), return_exceptions=True)
    lost = [r for r in both if isinstance(r, RefUpdateError)]
    assert len(lost) == 1, both
    moved(lost[0])


async def send_twice():
    builder = begin(await fresh()).add_file("a", "a")
    await builder.send()
    await builder.send()


async def add_after_send():
    builder = begin(await fresh()).add_file("a", "a")
    await builder.send()
    builder.add_file("b", "b")


async def much():
    await begin(STRANGER.repo(id=(await fixture()).repo.id)).add_file("large", bytes(20 << 20)).send()


async def nothing_to_do():
    await begin((await fixture()).repo).add_file("src/deep/util.js", "export const a = 1;\n").send()


async def expected_of_empty():
    await begin(await fresh(), expected_head_sha=NOBODY).add_file("x", "x").send()


PATCH = """diff --git a/README.md b/README.md
--- a/README.md
+++ b/README.md
@@ -1,3 +1,3 @@
 # Hello
-changed line
+patched line
 third line
diff --git a/added.txt b/added.txt
new file mode 100644
index 0000000000000000000000000000000000000000..ce013625030ba8dba906f756967f9e9ca394464a
--- /dev/null
+++ b/added.txt
@@ -0,0 +1 @@
+hello
"""


def apply(repo, **options):
    return repo.create_commit_from_diff(**{"target_branch": "main", "commit_message": "Apply", "author": AUTHOR, "diff": PATCH, **options})


def applying(**options):
    async def run():
        await apply((await fixture()).repo, **options)

    return run


async def from_diff():
    h = await history()
    done = await apply(h.repo, expected_head_sha=h.tip, committer=BOT)
    assert done["ref_update"] == {"branch": "main", "old_sha": h.tip, "new_sha": done["commit_sha"]} and done["blob_count"] == 2
    assert "patched line" in await text(h.repo, "README.md")
    upon = await apply(h.repo, target_branch="patched", base_branch="session", ephemeral=True, ephemeral_base=True)
    assert upon["ref_update"]["old_sha"] == ZERO
    assert await text(h.repo, "added.txt", ref="patched", ephemeral=True) == "hello\n"


async def from_commit_diff():
    h = await history()
    diff = await h.repo.get_commit_diff(sha=h.tip, git_apply_compatible=True)
    await h.repo.create_branch(base_ref=h.first, target_branch="old")
    await apply(h.repo, target_branch="old", diff=[f["raw"] for f in diff["files"]])
    assert await text(h.repo, "README.md", ref="old") == await text(h.repo, "README.md")


def restore(repo, sha, **options):
    return repo.restore_commit(**{"target_branch": "main", "target_commit_sha": sha, "author": AUTHOR, **options})


def restoring(of, **options):
    async def run():
        h = await fixture()
        await restore(h.repo, of(h), **options)

    return run


async def restored():
    h = await history()
    done = await restore(h.repo, h.first, expected_head_sha=h.tip)
    assert done["ref_update"] == {"branch": "main", "old_sha": h.tip, "new_sha": done["commit_sha"]}
    assert is_sha(done["tree_sha"]) and done["target_branch"] == "main"
    c = (await h.repo.get_commit(sha=done["commit_sha"]))["commit"]
    assert (c["parent_shas"], c["message"]) == ([h.tip], 'Reset main to "Change README.md,src/app.js,src/deep/util.js"')
    assert "second line" in await text(h.repo, "README.md")
    again = await restore(h.repo, "HEAD~1", commit_message=" Back ", committer=BOT)
    c = (await h.repo.get_commit(sha=again["commit_sha"]))["commit"]
    assert (c["message"], c["committer_name"]) == ("Back", "Bot")


BAD_PATHS = (".git/config", "a/../b", "a//b", ".GIT/x", "git~1/x", "a\0b")
def narrowly(kib):
    async def run():
        await begin(NARROW.repo(id="narrow")).add_file("large", noise(kib)).send()

    return run


COMMITS = {
    "Repo.create_commit": Row({"every option": create_commit}, {
        "no branch": (plain("target_branch is required"), building(target_branch=" ")),
        "no message": (plain("commit_message is required"), building(commit_message=" ")),
        "no author": (plain("author name and email"), building(author={"name": " ", "email": ""})),
        "an ephemeral base without a base": (plain("requires base_branch"), building(ephemeral_base=True)),
        "another ref": (plain("refs/"), building(target_branch="refs/tags/x")),
    }),
    "CommitBuilder.add_file": Row({"from every kind of source": sources, "in pieces of 4 MiB": large}, {
        "no path": (plain("non-empty"), adding("add_file", " ", "x")),
        "after send": (plain("reused"), add_after_send),
        **{f"the path {path!r}": (update("invalid"), sending(path)) for path in BAD_PATHS},
    }),
    "CommitBuilder.add_file_from_string": Row({"in other encodings": encodings}, {"no path": (plain("non-empty"), adding("add_file_from_string", "", "x"))}),
    "CommitBuilder.delete_path": Row({"a file, and a folder": delete}, {
        "nothing there": (update("precondition_failed", "no changes"), delete_nothing),
        "no path": (plain("non-empty"), adding("delete_path", "")),
    }),
    "CommitBuilder.send": Row({"first, and upon what is expected": send, "only the first of two that expect the same": two_writers}, {
        "the branch moved": (moved, sending(expected_head_sha=NOBODY)),
        "a new branch whose base moved": (moved, sending(target_branch="n", base_branch="main", expected_head_sha=NOBODY)),
        "an expectation of an empty repository": (update("precondition_failed"), expected_of_empty),
        "nothing to do": (update("precondition_failed", "no changes"), nothing_to_do),
        "an unknown base": (update("not_found"), sending(target_branch="n", base_branch="absent")),
        "an unknown branch without a base": (update("not_found"), sending(target_branch="n")),
        "a bad branch name": (update("invalid"), sending(target_branch="a..b")),
        "a bad guard": (update("invalid"), sending(expected_head_sha="abc")),
        "a policy": (update("forbidden", "denied by policy"), sending(ref_policies=CLOSED)),
        "a policy that wants signatures": (update("forbidden"), sending(ref_policies=[{"pattern": "main", "ops": [OP_VERIFY_SIG]}])),
        "an unknown key, with much to send": (update("unauthorized"), much),
        "more than all that there may be": (over("payload_too_large", "payload_too_large", "65536 bytes"), narrowly(100)),
        "more than there is room for": (over("failed", "failed", "65536 bytes"), narrowly(40)),
        "twice": (plain("reused"), send_twice),
    }, call=lambda repo: begin(repo).add_file("x", "x").send(), kind=update),
    "Repo.create_commit_from_diff": Row({"a patch, upon a base": from_diff, "what get_commit_diff gives": from_commit_diff}, {
        "it does not apply": (update("conflict"), applying(diff=PATCH.replace("-changed", "-other"))),
        "not a patch": (update("invalid"), applying(diff="hello\n")),
        "nothing": (update("precondition_failed"), applying(diff="")),
        "the branch moved": (moved, applying(expected_head_sha=NOBODY)),
        "an unknown base": (update("not_found"), applying(target_branch="n", base_branch="absent")),
        "a path in .git": (update("invalid"), applying(diff=PATCH.replace("added.txt", ".git/x"))),
        "a policy": (update("forbidden", "denied by policy"), applying(ref_policies=CLOSED)),
        "no message": (plain("required"), applying(commit_message="")),
    }, call=apply, kind=update),
    "Repo.restore_commit": Row({"a new commit with the old tree": restored}, {
        "its own tip": (update("precondition_failed"), restoring(lambda h: h.tip)),
        "not an ancestor": (update("precondition_failed"), restoring(lambda h: h.feature)),
        "unknown": (update("precondition_failed"), restoring(lambda h: NOBODY)),
        "the branch moved": (moved, restoring(lambda h: h.first, expected_head_sha=NOBODY)),
        "an unknown branch": (update("not_found"), restoring(lambda h: h.first, target_branch="absent")),
        "a policy": (update("forbidden", "denied by policy"), restoring(lambda h: h.first, ref_policies=CLOSED)),
        "another ref": (plain("refs/"), restoring(lambda h: h.first, target_branch="refs/tags/x")),
        "no author": (plain("author"), restoring(lambda h: h.first, author={"name": " ", "email": ""})),
    }, call=lambda repo: restore(repo, NOBODY), kind=update),
}
