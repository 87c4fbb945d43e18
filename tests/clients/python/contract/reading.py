"""What is read of a repository."""

import io
import tarfile
from datetime import datetime

from pierre_storage import DiffFileState
from pierre_storage.types import GitFileMode

from .world import AUTHOR, NOBODY, Row, commit, fixture, fresh, history, is_sha, pages, plain, status

FILES = ["README.md", "src/app.js", "src/deep/util.js"]


async def content(response):
    async with response:
        return await response.aread()


async def text(repo, path, **options):
    return (await content(await repo.get_file_stream(path=path, **options))).decode()


async def entries(repo, **options):
    archive = await repo.get_archive_stream(**options)
    assert archive.headers["content-type"] == "application/gzip"
    with tarfile.open(fileobj=io.BytesIO(await content(archive)), mode="r:gz") as tar:
        return sorted(m.name for m in tar.getmembers() if not m.isdir())


def asks(method, **options):
    """A call upon the fixture's repository."""

    async def run():
        await getattr((await fixture()).repo, method)(**options)

    return run


def empty(method, **options):
    async def run():
        await getattr(await fresh(), method)(**options)

    return run


async def whole_file():
    h = await fixture()
    file = await h.repo.get_file_stream(path="/README.md")
    assert file.status_code == 200 and file.headers["etag"] == f'"{file.headers["x-blob-sha"]}"'
    assert file.headers["x-last-commit-sha"] == h.tip
    assert await content(file) == b"# Hello\nchanged line\nthird line\n"
    assert "second line" in await text(h.repo, "README.md", ref=h.first)
    assert await text(h.repo, "state.json", ref="session", ephemeral=True) == "{}\n"
    assert await text(h.repo, "state.json", ref="session", ephemeral_base=True) == "{}\n"


async def conditions():
    repo = (await fixture()).repo

    async def get(**headers):
        response = await repo.get_file_stream(path="README.md", headers=headers)
        return response.status_code, response.headers, await content(response)

    code, headers, body = await get(range="bytes=2-6")
    assert (code, body, headers["content-range"]) == (206, b"Hello", "bytes 2-6/32")
    code, beyond, _ = await get(range="bytes=32-")
    assert (code, beyond["content-range"]) == (416, "bytes */32")
    assert (await get(if_none_match=headers["etag"]))[0] == 304
    assert (await get(if_match='"x"'))[0] == 412
    assert (await get(if_modified_since=headers["last-modified"]))[0] == 304
    assert (await get(if_unmodified_since="Thu, 01 Jan 1970 00:00:01 GMT"))[0] == 412
    assert (await get(range="bytes=2-6", if_range='"x"'))[0] == 200


async def head():
    h = await fixture()
    got = await h.repo.head_file(path="README.md")
    assert (got["status_code"], got["size"], got["last_commit_sha"], got["accept_ranges"]) == (200, 32, h.tip, "bytes")
    assert is_sha(got["blob_sha"]) and got["etag"] == f'"{got["blob_sha"]}"'
    assert isinstance(got["last_modified"], datetime)
    assert (await h.repo.head_file(path="README.md", headers={"if_none_match": got["etag"]}))["status_code"] == 304
    assert (await h.repo.head_file(path="src/app.js"))["last_commit_sha"] == h.first


async def archive():
    h = await fixture()
    assert await entries(h.repo) == FILES
    assert await entries(h.repo, include_globs=["src/**"]) == FILES[1:]
    assert await entries(h.repo, exclude_globs=["src/**"], archive_prefix="project") == ["project/README.md"]
    assert await entries(h.repo, max_blob_size=30) == ["src/deep/util.js"]
    assert await entries(h.repo, include_globs=["none"]) == []
    assert "state.json" in await entries(h.repo, ref=h.session)


async def files():
    h = await fixture()
    listed = await h.repo.list_files()
    assert (listed["paths"], listed["ref"], listed["has_more"]) == (FILES, "main", False)
    assert {"path": "src/deep", "type": "tree", "mode": "040000"} in listed["entries"]
    assert (await h.repo.list_files(recursive=False))["paths"] == ["README.md"]
    assert (await h.repo.list_files(path="src/deep"))["paths"] == FILES[2:]
    session = await h.repo.list_files(ref="session", ephemeral=True)
    assert "state.json" in session["paths"] and session["ref"] == "refs/namespaces/ephemeral/refs/heads/session"


async def file_modes():
    repo = await fresh()
    builder = repo.create_commit(target_branch="main", commit_message="Modes", author=AUTHOR)
    builder.add_file_from_string("bin/run", "#!/bin/sh\n", mode=GitFileMode.EXECUTABLE)
    builder.add_file_from_string("link", "bin/run", mode=GitFileMode.SYMLINK)
    builder.add_file_from_string("sub", NOBODY, mode=GitFileMode.SUBMODULE)
    await builder.send()
    modes = {"bin": "tree 040000", "bin/run": "blob 100755", "link": "symlink 120000", "sub": "submodule 160000"}
    assert {e["path"]: f'{e["type"]} {e["mode"]}' for e in (await repo.list_files())["entries"]} == modes
    first = await repo.list_files(limit=1)
    rest = await repo.list_files(cursor=first["next_cursor"])
    assert sorted(e["path"] for e in first["entries"] + rest["entries"]) == sorted(modes)


async def details():
    h = await fixture()
    listed = await h.repo.list_files_with_metadata()
    assert [(f["path"], f["last_commit_sha"], f["size"]) for f in listed["files"]] == list(zip(FILES, [h.tip, h.first, h.first], [32, 31, 20]))
    assert set(listed["commits"]) == {h.first, h.tip}
    last = listed["commits"][h.tip]
    assert (last["author"], last["message"]) == (AUTHOR["name"], "Change README.md") and last["date"].year > 2000
    assert await pages(h.repo.list_files_with_metadata, "files") == listed["files"]
    assert len((await h.repo.list_files_with_metadata(path="src"))["files"]) == 2


async def log():
    h = await fixture()
    commits = (await h.repo.list_commits())["commits"]
    assert [(c["sha"], c["parent_shas"]) for c in commits] == [(h.tip, [h.first]), (h.first, [])]
    c = commits[0]
    assert (c["message"], c["author_name"], c["author_email"], c["committer_name"]) == ("Change README.md", AUTHOR["name"], AUTHOR["email"], "Bot")
    assert c["date"].utcoffset().total_seconds() == 0
    assert [c["sha"] for c in await pages(h.repo.list_commits, "commits", branch="main")] == [h.tip, h.first]
    assert [c["sha"] for c in (await h.repo.list_commits(path="src"))["commits"]] == [h.first]
    assert (await h.repo.list_commits(branch="session", ephemeral=True))["commits"][0]["sha"] == h.session
    assert (await (await fresh()).list_commits())["commits"] == []


async def one_commit():
    h = await fixture()
    c = (await h.repo.get_commit(sha=h.tip))["commit"]
    assert (c["sha"], c["parent_shas"], c["message"]) == (h.tip, [h.first], "Change README.md")
    assert "signature" not in c and "payload" not in c
    assert (await h.repo.get_commit(sha="main~1"))["commit"]["sha"] == h.first


async def blame():
    h = await fixture()
    got = await h.repo.get_blame(path="README.md")
    assert (got["ref"], got["path"], got["commit_sha"]) == ("main", "README.md", h.tip)
    assert [(n["line_number"], n["commit_sha"], n["original_path"]) for n in got["lines"]] == [
        (1, h.first, "README.md"), (2, h.tip, "README.md"), (3, h.first, "README.md")]
    changed = got["lines"][1]
    assert (changed["previous_commit_sha"], changed["committer_name"], changed["summary"]) == (h.first, "Bot", "Change README.md")
    assert isinstance(changed["author_time"], datetime)
    some = await h.repo.get_blame(path="README.md", ref=h.first, ranges=["1,1", "/third/,+1"], detect_moves=True)
    assert [n["line_number"] for n in some["lines"]] == [1, 3]
    assert len((await h.repo.get_blame(path="state.json", ref="session", ephemeral=True))["lines"]) == 1


async def blame_binary():
    repo = await fresh()
    await commit(repo, "main", {"bin": "a\0b"})
    await repo.get_blame(path="bin")


async def grep():
    h = await fixture()
    got = await h.repo.grep(pattern="return [0-9]", context={"before": 1, "after": 1})
    assert got["query"] == {"pattern": "return [0-9]", "case_sensitive": True}
    assert got["repo"]["commit"] == h.tip and got["has_more"] is False
    assert got["matches"] == [{"path": "src/app.js", "lines": [
        {"line_number": 1, "text": "function app() {", "type": "context"},
        {"line_number": 2, "text": "  return 1;", "type": "match"},
        {"line_number": 3, "text": "}", "type": "context"},
    ]}]
    assert (await h.repo.grep(pattern="hello"))["matches"] == []
    some = await h.repo.grep(pattern="hello", case_sensitive=False, file_filters={"include_globs": ["README.md"]}, limits={"max_matches_per_file": 1})
    assert some["matches"][0]["lines"] == [{"line_number": 1, "text": "# Hello", "type": "match"}]

    async def paths(**options):
        return [m["path"] for m in (await h.repo.grep(pattern=".", **options))["matches"]]

    assert await paths(paths=["src"]) == FILES[1:]
    assert await paths(file_filters={"extension_filters": [".js"], "exclude_globs": ["src/deep/**"]}) == ["src/app.js"]
    assert "state.json" in await paths(ref="session", ephemeral=True)
    seen, cursor = 0, None
    while True:
        page = await h.repo.grep(pattern=".", pagination={"limit": 2, **({"cursor": cursor} if cursor else {})})
        seen += sum(len(m["lines"]) for m in page["matches"])
        cursor = page["next_cursor"]
        assert bool(cursor) == page["has_more"]
        if not cursor:
            break
    assert seen == 7, seen


async def commit_diff():
    h = await fixture()
    diff = await h.repo.get_commit_diff(sha=h.tip)
    assert diff["sha"] == h.tip and diff["stats"] == {"files": 1, "additions": 1, "deletions": 1, "changes": 2}
    (file,) = diff["files"]
    assert (file["path"], file["state"], file["is_eof"], file["additions"]) == ("README.md", DiffFileState.MODIFIED, True, 1)
    assert "-second line\n+changed line\n" in file["raw"] and file["bytes"] == len(file["raw"].encode())
    assert diff["filtered_files"] == []
    assert len((await h.repo.get_commit_diff(sha=h.first))["files"]) == 3
    some = await h.repo.get_commit_diff(sha=h.feature, base_sha=h.first, paths=["feature.txt"])
    assert [(f["path"], f["state"]) for f in some["files"]] == [("feature.txt", DiffFileState.ADDED)]


async def patch():
    repo = await fresh()
    await commit(repo, "main", {"a": "one\n"})
    done = await commit(repo, "main", {"a": "one \n", "b": "x\0y"})
    assert [f["path"] for f in (await repo.get_commit_diff(sha=done["commit_sha"]))["filtered_files"]] == ["b"]
    whole = await repo.get_commit_diff(sha=done["commit_sha"], git_apply_compatible=True, paths=["a", "b"])
    raw = "".join(f["raw"] for f in whole["files"])
    assert "+one \n" in raw and "GIT binary patch" in raw, raw


async def branch_diff():
    h = await history()
    await commit(h.repo, "main", {"later.txt": "later\n"})
    diff = await h.repo.get_branch_diff(branch="feature")
    assert (diff["branch"], diff["base"], diff["merge_base_sha"]) == ("feature", "main", h.tip)
    assert [(f["path"], f["state"]) for f in diff["files"]] == [("feature.txt", DiffFileState.ADDED)]

    async def paths(**options):
        return [f["path"] for f in (await h.repo.get_branch_diff(**options))["files"]]

    assert await paths(branch="main", base="feature", paths=["later.txt"]) == ["later.txt"]
    assert await paths(branch="session", ephemeral=True) == ["state.json"]
    assert await paths(branch="feature", base="session", ephemeral_base=True) == ["feature.txt"]


READING = {
    "Repo.get_file_stream": Row(
        {"whole": whole_file, "ranges and conditions": conditions},
        {
            "an absent path": (status(404), asks("get_file_stream", path="absent")),
            "a directory": (status(404), asks("get_file_stream", path="src")),
            "an unknown ref": (status(404), asks("get_file_stream", path="README.md", ref="absent")),
            "an ephemeral ref without the flag": (status(404), asks("get_file_stream", path="state.json", ref="session")),
            "a path that climbs": (status(400), asks("get_file_stream", path="../README.md")),
            "no path": (status(400), asks("get_file_stream", path="")),
        }, call=lambda repo: repo.get_file_stream(path="README.md")),
    "Repo.head_file": Row({"identity without content": head}, {
        "an absent path": (status(404), asks("head_file", path="absent")),
        "a path that climbs": (status(400), asks("head_file", path="a/../b")),
    }, call=lambda repo: repo.head_file(path="README.md")),
    "Repo.get_archive_stream": Row({"filters, a prefix, an ephemeral commit": archive}, {
        "an unknown commit": (status(404), asks("get_archive_stream", ref=NOBODY)),
        "a prefix that climbs": (status(400), asks("get_archive_stream", archive_prefix="../up")),
        "a bad glob": (status(400), asks("get_archive_stream", include_globs=["[a"])),
        "an empty repository": (status(404), empty("get_archive_stream")),
    }, call=lambda repo: repo.get_archive_stream()),
    "Repo.list_files": Row({"everything, a folder": files, "modes and pages": file_modes}, {
        "an unknown ref": (status(404), asks("list_files", ref="absent")),
        "an unknown folder": (status(404), asks("list_files", path="absent")),
        "an empty repository": (status(404), empty("list_files")),
        "a bad limit": (status(400), asks("list_files", limit=0)),
    }, call=lambda repo: repo.list_files()),
    "Repo.list_files_with_metadata": Row({"the last commits of a page": details}, {
        "an unknown ref": (status(404), asks("list_files_with_metadata", ref="absent")),
        "an ephemeral listing without a ref": (status(400), asks("list_files_with_metadata", ephemeral=True)),
        "an empty repository": (status(404), empty("list_files_with_metadata")),
    }, call=lambda repo: repo.list_files_with_metadata()),
    "Repo.list_commits": Row({"newest first": log}, {
        "an unknown branch": (status(404), asks("list_commits", branch="absent")),
        "an ephemeral branch without the flag": (status(404), asks("list_commits", branch="session")),
        "a bad cursor": (status(400), asks("list_commits", cursor="x")),
    }, call=lambda repo: repo.list_commits()),
    "Repo.get_commit": Row({"by its id, by a revision": one_commit}, {
        "unknown": (status(404), asks("get_commit", sha=NOBODY)),
        "no id": (plain("required"), asks("get_commit", sha=" ")),
    }, call=lambda repo: repo.get_commit(sha="main")),
    "Repo.get_blame": Row({"each line, ranges": blame}, {
        "an absent path": (status(404), asks("get_blame", path="absent")),
        "an unknown ref": (status(404), asks("get_blame", path="README.md", ref="absent")),
        "a bad range": (status(400), asks("get_blame", path="README.md", ranges=["x"])),
        "too many ranges": (status(400), asks("get_blame", path="README.md", ranges=["1,1"] * 17)),
        "a binary file": (status(400), blame_binary),
        "no path": (plain("required"), asks("get_blame", path=" ")),
    }, call=lambda repo: repo.get_blame(path="README.md")),
    "Repo.grep": Row({"case, context, filters, pages": grep}, {
        "a bad expression": (status(400), asks("grep", pattern="(")),
        "an unknown ref": (status(404), asks("grep", pattern="x", ref="absent")),
        "a bad cursor": (status(400), asks("grep", pattern="x", pagination={"cursor": "x"})),
        "an empty repository": (status(404), empty("grep", pattern="x")),
        "no pattern": (plain("required"), asks("grep", pattern="")),
    }, call=lambda repo: repo.grep(pattern="x")),
    "Repo.get_commit_diff": Row({"against the parent, a base": commit_diff, "a patch that applies, and what is filtered": patch}, {
        "unknown": (status(404), asks("get_commit_diff", sha=NOBODY)),
        "an unknown base": (status(404), asks("get_commit_diff", sha="main", base_sha=NOBODY)),
        "no id": (status(400), asks("get_commit_diff", sha="")),
    }, call=lambda repo: repo.get_commit_diff(sha="main")),
    "Repo.get_branch_diff": Row({"since the merge base": branch_diff}, {
        "an unknown branch": (status(404), asks("get_branch_diff", branch="absent")),
        "an unknown base": (status(404), asks("get_branch_diff", branch="feature", base="absent")),
        "no branch": (status(400), asks("get_branch_diff", branch="")),
    }, call=lambda repo: repo.get_branch_diff(branch="feature")),
}
