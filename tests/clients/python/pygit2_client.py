"""Drives libgit2: URL TOKEN DIR STEP. Prints the commit that the step ends on."""

import sys
from pathlib import Path

import pygit2


class Access(pygit2.RemoteCallbacks):
    def __init__(self, token: str) -> None:
        super().__init__(credentials=pygit2.UserPass("t", token))

    def push_update_reference(self, refname: str, message: str | None) -> None:
        if message is not None:
            raise RuntimeError(f"{refname}: {message}")


def main(url: str, token: str, directory: str, step: str) -> None:
    access = Access(token)
    if step == "clone":
        repo = pygit2.clone_repository(url, directory, callbacks=access)
    elif step == "shallow":
        repo = pygit2.clone_repository(url, directory, callbacks=access, depth=1)
    elif step == "fetch":
        repo = pygit2.Repository(directory)
        repo.remotes["origin"].fetch(callbacks=access)
        print(repo.references["refs/remotes/origin/main"].target)
        return
    elif step == "push":
        repo = pygit2.Repository(directory)
        who = pygit2.Signature("Sandbox worker", "worker@example.com")
        Path(directory, "pygit2.txt").write_text("from libgit2\n")
        repo.index.add("pygit2.txt")
        tree = repo.index.write_tree()
        tip = repo.create_commit("refs/heads/pygit2", who, who, "Work of libgit2", tree, [repo.head.target])
        repo.create_tag("pygit2-v1", tip, pygit2.enums.ObjectType.COMMIT, who, "libgit2's tag")
        repo.remotes["origin"].push(["refs/heads/pygit2", "refs/tags/pygit2-v1"], callbacks=access)
        print(tip)
        return
    else:
        raise SystemExit(f"unknown step {step}")
    print(repo.head.target)


main(*sys.argv[1:])
