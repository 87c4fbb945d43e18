"""Branches, tags, notes and merges."""

from .reading import asks
from .repos import UPSTREAM
from .world import AUTHOR, BOT, CLOSED, FORWARD, NARROW, NOBODY, Row, commit, fixture, fresh, history, is_sha, moved, names, noise, pages, plain, quota, status, update, worded


async def branches():
    h = await fixture()
    listed = (await h.repo.list_branches())["branches"]
    assert [(b["name"], b["head_sha"]) for b in listed] == [("main", h.tip), ("feature", h.feature)]
    assert all(b["created_at"].endswith("Z") for b in listed)
    assert await names(h.repo, ephemeral=True) == ["session"]
    assert [b["name"] for b in await pages(h.repo.list_branches, "branches")] == ["main", "feature"]
    assert [b["name"] for b in (await h.repo.list_branches(cursor=listed[0]["cursor"]))["branches"]] == ["feature"]
    assert await (await fresh()).list_branches() == {"branches": [], "next_cursor": None, "has_more": False}


async def syncing():
    await (await fresh(base_repo={**UPSTREAM, "name": "silent"})).list_branches()


async def create_branch():
    h = await history()
    await h.repo.create_tag(name="v1", target=h.first)
    made = await h.repo.create_branch(base_branch="main", target_branch="release/1")
    assert (made["target_branch"], made["target_is_ephemeral"], made["commit_sha"]) == ("release/1", False, h.tip) and made["message"]
    for target, base, want in (("a", "v1", h.first), ("b", h.tip, h.tip), ("c", "main~1", h.first), ("d", "refs/heads/main", h.tip)):
        assert (await h.repo.create_branch(base_ref=base, target_branch=target))["commit_sha"] == want
    made = await h.repo.create_branch(base_ref="main", target_branch="main", target_is_ephemeral=True)
    assert made["target_is_ephemeral"] is True


async def promote():
    h = await history()
    made = await h.repo.promote_ephemeral_branch(base_branch="session")
    assert (made["target_branch"], made["commit_sha"], made["target_is_ephemeral"]) == ("session", h.session, False)
    assert (await h.repo.promote_ephemeral_branch(base_branch="session", target_branch="kept"))["commit_sha"] == h.session
    assert await names(h.repo) == ["feature", "kept", "main", "session"]
    assert await names(h.repo, ephemeral=True) == ["session"]


async def delete_branch():
    h = await history()
    await h.repo.create_branch(base_ref="main", target_branch="feature", target_is_ephemeral=True)
    gone = await h.repo.delete_branch(name="feature")
    assert (gone["name"], gone["ephemeral"]) == ("feature", False) and gone["message"]
    assert await names(h.repo, ephemeral=True) == ["feature", "session"]
    assert (await h.repo.delete_branch(name="feature", ephemeral=True))["ephemeral"] is True


async def tags():
    h = await history()
    for name, target in (("v2", h.tip), ("v1", h.first), ("a/b", h.tip)):
        await h.repo.create_tag(name=name, target=target)
    listed = await pages(h.repo.list_tags, "tags")
    assert [(t["name"], t["sha"]) for t in listed] == [("a/b", h.tip), ("v1", h.first), ("v2", h.tip)]
    assert [t["name"] for t in (await h.repo.list_tags(cursor=listed[1]["cursor"]))["tags"]] == ["v2"]


async def create_tag():
    h = await history()
    made = await h.repo.create_tag(name="v1", target=h.first)
    assert (made["name"], made["sha"]) == ("v1", h.first) and made["message"]
    return h


async def create_tag_twice():
    h = await create_tag()
    await h.repo.create_tag(name="v1", target=h.first)


async def tag_denied():
    h = await fixture()
    await h.repo.create_tag(name="v1", target=h.tip, ref_policies=CLOSED)


async def delete_tag():
    h = await create_tag()
    gone = await h.repo.delete_tag(name="v1")
    assert gone["name"] == "v1" and gone["message"]
    assert (await h.repo.list_tags())["tags"] == []


async def delete_tag_denied():
    await (await create_tag()).repo.delete_tag(name="v1", ref_policies=CLOSED)


async def noted(**options):
    h = await history()
    return h, await h.repo.create_note(sha=h.tip, note=" looks good\n", author=AUTHOR, **options)


async def get_note():
    h, made = await noted()
    assert await h.repo.get_note(sha=h.tip) == {"sha": h.tip, "note": "looks good", "ref_sha": made["new_ref_sha"]}
    await h.repo.create_note(sha=h.tip, note="elsewhere", ref="reviews")
    for ref in ("reviews", "notes/reviews", "refs/notes/reviews"):
        assert (await h.repo.get_note(sha=h.tip, ref=ref))["note"] == "elsewhere"


async def create_note():
    h, made = await noted()
    assert (made["sha"], made["target_ref"], made["result"]["success"], made["result"]["status"]) == (h.tip, "refs/notes/commits", True, "ok")
    assert not made.get("base_commit")
    second = await h.repo.create_note(sha=h.first, note="x", expected_ref_sha=made["new_ref_sha"])
    assert second["base_commit"] == made["new_ref_sha"]


async def note_there():
    h, _ = await noted()
    await h.repo.create_note(sha=h.tip, note="y")


async def append_note():
    h = await history()
    one = await h.repo.append_note(sha=h.tip, note="one")
    two = await h.repo.append_note(sha=h.tip, note="two", expected_ref_sha=one["new_ref_sha"])
    assert two["base_commit"] == one["new_ref_sha"]
    assert (await h.repo.get_note(sha=h.tip))["note"] == "one\n\ntwo"


async def delete_note():
    h, made = await noted(ref="reviews")
    gone = await h.repo.delete_note(sha=h.tip, ref="reviews", expected_ref_sha=made["new_ref_sha"], author=AUTHOR)
    assert (gone["target_ref"], gone["base_commit"], gone["result"]["status"]) == ("refs/notes/reviews", made["new_ref_sha"], "ok")


def upon_note(method, object_of=lambda h: h.tip, **options):
    """A change in a repository whose tip has a note."""

    async def run():
        h, _ = await noted()
        await getattr(h.repo, method)(sha=object_of(h), **options)

    return run


async def note_denied():
    h = await fixture()
    await h.repo.create_note(sha=h.tip, note="x", ref_policies=CLOSED)


async def no_note():
    h = await fixture()
    await h.repo.delete_note(sha=h.tip)


async def notes_refs():
    h = await history()
    assert await h.repo.list_notes_refs() == {"refs": [], "next_cursor": None, "has_more": False, "prefix": "refs/notes/"}
    for ref in ("reviews/b", "reviews/a", "ci"):
        await h.repo.create_note(sha=h.tip, note=ref, ref=ref)
    listed = await pages(h.repo.list_notes_refs, "refs")
    assert [r["ref"] for r in listed] == ["refs/notes/ci", "refs/notes/reviews/a", "refs/notes/reviews/b"]
    assert all(is_sha(r["sha"]) for r in listed)
    some = await h.repo.list_notes_refs(prefix="reviews/")
    assert some["prefix"] == "refs/notes/reviews/" and len(some["refs"]) == 2


async def conflict():
    """Two branches that change one line differently."""
    h = await history()
    for branch in ("left", "right"):
        await commit(h.repo, branch, {"README.md": f"# {branch}\nchanged line\nthird line\n"}, base_branch="main")
    return h


async def merge():
    h = await history()
    done = await h.repo.merge(
        source_branch="feature", target_branch="main", strategy="merge", expected_target_sha=h.tip, commit_message="Take it", author=AUTHOR, committer=BOT)
    assert (done["result"], done["merge_base_sha"], done["promoted_commits"]) == ("merge_commit", h.tip, 2), done
    assert done["source"] == {"branch": "feature", "ephemeral": False, "sha": h.feature}
    assert done["target"] == {"branch": "main", "ephemeral": False, "old_sha": h.tip, "new_sha": done["commit_sha"]}
    c = (await h.repo.get_commit(sha=done["commit_sha"]))["commit"]
    assert (c["parent_shas"], c["message"], c["committer_name"]) == ([h.tip, h.feature], "Take it", "Bot")
    forwarded = await h.repo.merge(source_branch="main", target_branch="feature", strategy="ff_only")
    assert (forwarded["result"], forwarded["target"]["new_sha"]) == ("fast_forward", done["commit_sha"])
    nothing = await h.repo.merge(source_branch="main", target_branch="feature", strategy="ff_prefer")
    assert (nothing["result"], nothing["promoted_commits"]) == ("no_op", 0)
    squashed = await h.repo.merge(source_branch="session", source_is_ephemeral=True, target_branch="main", strategy="merge", squash=True)
    assert (squashed["result"], squashed["source"]["ephemeral"]) == ("squash", True)


async def merge_conflict():
    await (await conflict()).repo.merge(source_branch="left", target_branch="right", strategy="merge")


def in_conflict(err):
    worded(409, "conflict")(err)
    body = err.response.json()
    assert (body["conflict_type"], body["conflict_paths"]) == ("merge_conflict", ["README.md"]) and is_sha(body["merge_base_sha"]), body


def target_moved(err):
    worded(409)(err)
    assert err.response.json()["conflict_type"] == "target_moved"


async def no_way_forward():
    await (await conflict()).repo.merge(source_branch="left", target_branch="right", strategy="ff_only")


async def preview():
    h = await fixture()
    clean = await h.repo.preview_merge(source_branch="feature", target_branch="main", include_content=False)
    assert (clean["status"], clean["result"], clean["source_tip_sha"], clean["target_tip_sha"], clean["merge_base_sha"]) == (
        "clean", "fast_forward", h.feature, h.tip, h.tip)
    assert (clean["conflict_paths"], clean["conflicts"], clean["filtered_conflicts"]) == ([], [], [])
    h = await conflict()
    got = await h.repo.preview_merge(source_branch="left", target_branch="right", include_content=True)
    assert (got["status"], got["result"], got["conflict_paths"]) == ("conflicted", "merge_commit", ["README.md"])
    (c,) = got["conflicts"]
    assert "# Hello" in c["base"]["content"] and "# right" in c["ours"]["content"] and "# left" in c["theirs"]["content"]
    assert all(c[side]["truncated"] is False and c[side]["binary"] is False for side in ("result", "base", "ours", "theirs"))


def merging(**options):
    return asks("merge", **{"source_branch": "feature", "target_branch": "main", "strategy": "merge", **options})


def narrowly(method, **options):
    async def run():
        await getattr(NARROW.repo(id="narrow"), method)(**options)

    return run


REFS = {
    "Repo.list_branches": Row({"normal and ephemeral, by pages": branches}, {
        "before its first sync": (status(409, "sync in progress"), syncing),
        "a bad cursor": (status(400), asks("list_branches", cursor="x")),
        "a bad limit": (status(400), asks("list_branches", limit=-1)),
    }, call=lambda repo: repo.list_branches()),
    "Repo.create_branch": Row({"from anything, ephemeral": create_branch}, {
        "it exists": (worded(409, "exists"), asks("create_branch", base_ref="main", target_branch="feature")),
        "an unknown base": (worded(404), asks("create_branch", base_branch="absent", target_branch="x")),
        "an ephemeral base without the flag": (worded(404), asks("create_branch", base_ref="session", target_branch="x")),
        "a bad name": (worded(400), asks("create_branch", base_ref="main", target_branch="bad..name")),
        "a policy": (worded(403, "denied by policy"), asks("create_branch", base_ref="main", target_branch="x", ref_policies=CLOSED)),
        "no base": (plain("required"), asks("create_branch", target_branch="x")),
    }, call=lambda repo: repo.create_branch(base_ref="main", target_branch="x"), kind=worded),
    "Repo.promote_ephemeral_branch": Row({"under its name, another one": promote}, {
        "not ephemeral": (worded(404), asks("promote_ephemeral_branch", base_branch="feature", target_branch="x")),
        "it exists": (worded(409, "exists"), asks("promote_ephemeral_branch", base_branch="session", target_branch="main")),
        "no branch": (plain("required"), asks("promote_ephemeral_branch", base_branch=" ")),
    }, call=lambda repo: repo.promote_ephemeral_branch(base_branch="session"), kind=worded),
    "Repo.delete_branch": Row({"of one namespace": delete_branch}, {
        "not there": (worded(404), asks("delete_branch", name="absent")),
        "only ephemeral": (worded(404), asks("delete_branch", name="session")),
        "the default branch": (worded(409), asks("delete_branch", name="main")),
        "a policy": (worded(403, "denied by policy"), asks("delete_branch", name="feature", ref_policies=CLOSED)),
        "a policy against force": (worded(403, "denied by policy"), asks("delete_branch", name="feature", ref_policies=FORWARD)),
        "a full name": (plain("refs/"), asks("delete_branch", name="refs/heads/main")),
    }, call=lambda repo: repo.delete_branch(name="feature"), kind=worded),
    "Repo.list_tags": Row({"by name, by pages": tags}, {"a bad cursor": (status(400), asks("list_tags", cursor="x"))},
                          call=lambda repo: repo.list_tags()),
    "Repo.create_tag": Row({"of a commit": create_tag}, {
        "it exists": (worded(409), create_tag_twice),
        "an unknown commit": (worded(404), asks("create_tag", name="v1", target=NOBODY)),
        "a short target": (worded(400), asks("create_tag", name="v1", target="main")),
        "a bad name": (worded(400), asks("create_tag", name="a b", target=NOBODY)),
        "a policy": (worded(403, "denied by policy"), tag_denied),
        "a full name": (plain("refs/"), asks("create_tag", name="refs/tags/v1", target=NOBODY)),
    }, call=lambda repo: repo.create_tag(name="x", target=NOBODY), kind=worded),
    "Repo.delete_tag": Row({"and it is gone": delete_tag}, {
        "not there": (worded(404), asks("delete_tag", name="absent")),
        "a policy": (worded(403, "denied by policy"), delete_tag_denied),
        "a full name": (plain("refs/"), asks("delete_tag", name="refs/tags/v1")),
    }, call=lambda repo: repo.delete_tag(name="x"), kind=worded),
    "Repo.get_note": Row({"of a commit, under any ref": get_note}, {
        "a custom ref where there are none": (status(400, "custom notes refs are not enabled"), narrowly("get_note", sha="main", ref="reviews")),
        "no note": (status(404), asks("get_note", sha="main")),
        "an unknown object": (status(404), asks("get_note", sha=NOBODY)),
        "a ref elsewhere": (status(400), asks("get_note", sha="main", ref="refs/heads/main")),
        "no object": (plain("required"), asks("get_note", sha="")),
    }, call=lambda repo: repo.get_note(sha="main")),
    "Repo.create_note": Row({"with its result": create_note}, {
        "more than there is room for": (quota(507, worded), narrowly("create_note", sha="main", note=noise(30).hex())),
        "a custom ref where there are none": (worded(400, "custom notes refs are not enabled"), narrowly("create_note", sha="main", note="x", ref="reviews")),
        "a note is there": (update("conflict"), note_there),
        "the ref moved": (moved, upon_note("create_note", lambda h: h.first, note="y", expected_ref_sha=NOBODY)),
        "a policy": (update("forbidden", "denied by policy"), note_denied),
        "an unknown object": (worded(404), asks("create_note", sha=NOBODY, note="x")),
        "a bad guard": (worded(400), asks("create_note", sha="main", note="x", expected_ref_sha="abc")),
        "a blank note": (plain("required"), asks("create_note", sha=NOBODY, note=" ")),
    }, call=lambda repo: repo.create_note(sha=NOBODY, note="x"), kind=worded),
    "Repo.append_note": Row({"to nothing, and to a note": append_note}, {
        "a custom ref where there are none": (worded(400, "custom notes refs are not enabled"), narrowly("append_note", sha="main", note="x", ref="reviews")),
        "the ref moved": (moved, upon_note("append_note", note="y", expected_ref_sha=NOBODY)),
        "a policy": (update("forbidden", "denied by policy"), upon_note("append_note", note="y", ref_policies=CLOSED)),
        "an unknown object": (worded(404), asks("append_note", sha=NOBODY, note="x")),
        "a blank note": (plain("required"), asks("append_note", sha=NOBODY, note="")),
    }, call=lambda repo: repo.append_note(sha=NOBODY, note="x"), kind=worded),
    "Repo.delete_note": Row({"and it is gone": delete_note}, {
        "a custom ref where there are none": (worded(400, "custom notes refs are not enabled"), narrowly("delete_note", sha="main", ref="reviews")),
        "no note": (worded(404), no_note),
        "the ref moved": (moved, upon_note("delete_note", expected_ref_sha=NOBODY)),
        "a policy": (update("forbidden", "denied by policy"), upon_note("delete_note", ref_policies=CLOSED)),
        "no object": (plain("required"), asks("delete_note", sha="")),
    }, call=lambda repo: repo.delete_note(sha=NOBODY), kind=worded),
    "Repo.list_notes_refs": Row({"by name, by prefix": notes_refs}, {
        "a bad cursor": (status(400), asks("list_notes_refs", cursor="x")),
        "a prefix elsewhere": (status(400), asks("list_notes_refs", prefix="refs/heads/")),
    }, call=lambda repo: repo.list_notes_refs()),
    "Repo.merge": Row({"every strategy": merge}, {
        "a conflict": (in_conflict, merge_conflict),
        "the target moved": (target_moved, merging(expected_target_sha=NOBODY)),
        "no way forward": (worded(409), no_way_forward),
        "an unknown source": (worded(404), merging(source_branch="absent")),
        "an unknown target": (worded(404), merging(target_branch="absent")),
        "a policy": (worded(403, "denied by policy"), merging(ref_policies=CLOSED)),
        "a bad guard": (worded(400), merging(expected_target_sha="abc")),
        "a bad strategy": (plain("strategy"), merging(strategy="other")),
        "squash without a merge": (plain("squash"), merging(strategy="ff_only", squash=True)),
    }, call=lambda repo: repo.merge(source_branch="feature", target_branch="main", strategy="merge"), kind=worded),
    "Repo.preview_merge": Row({"clean, and in conflict": preview}, {
        "an unknown source": (worded(404), asks("preview_merge", source_branch="absent", target_branch="main")),
        "an unknown target": (worded(404), asks("preview_merge", source_branch="main", target_branch="absent")),
        "no source": (plain("required"), asks("preview_merge", source_branch=" ", target_branch="main")),
    }, call=lambda repo: repo.preview_merge(source_branch="feature", target_branch="main"), kind=worded),
}
