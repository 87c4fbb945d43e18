"""Drives dulwich: URL TOKEN DIR STEP. Prints the commit that the step ends on."""

import sys
from io import BytesIO
from pathlib import Path

from dulwich import porcelain
from dulwich.repo import Repo

WHO = b"Sandbox worker <worker@example.com>"


def main(url: str, token: str, directory: str, step: str) -> None:
    access = {"username": "t", "password": token, "errstream": BytesIO()}
    if step == "clone":
        repo = porcelain.clone(url, directory, **access)
    elif step == "shallow":
        repo = porcelain.clone(url, directory, depth=1, **access)
    elif step == "fetch":
        repo = Repo(directory)
        fetched = porcelain.fetch(repo, url, **access)
        print(fetched.refs[b"refs/heads/main"].decode())
        return
    elif step == "push":
        repo = Repo(directory)
        porcelain.branch_create(repo, "dulwich")
        porcelain.checkout(repo, "dulwich")
        Path(directory, "dulwich.txt").write_text("from dulwich\n")
        porcelain.add(repo, [str(Path(directory, "dulwich.txt"))])
        porcelain.commit(repo, message=b"Work of dulwich", author=WHO, committer=WHO, sign=False)
        porcelain.tag_create(repo, b"dulwich-v1", author=WHO, message=b"dulwich's tag", annotated=True, sign=False)
        porcelain.push(repo, url, ["refs/heads/dulwich", "refs/tags/dulwich-v1"], outstream=BytesIO(), **access)
    else:
        raise SystemExit(f"unknown step {step}")
    print(repo.head().decode())


main(*sys.argv[1:])
