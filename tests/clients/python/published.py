"""Calls every method of the published client, once with success and once with each failure that is documented of it.
Prints one JSON line a case."""

import asyncio
import inspect
import json
import time
import traceback
import warnings

import pierre_storage
from pierre_storage.repo import RepoImpl
from pierre_storage.commit import CommitBuilderImpl

from contract.client import CLIENT
from contract.commits import COMMITS
from contract.reading import READING
from contract.refs import REFS
from contract.repos import REPOS
from contract.world import LIMITED, STORE, STRANGER, asked, faulty, fixture, fresh, holder, proxied

ROWS = {**CLIENT, **REPOS, **READING, **REFS, **COMMITS}


def every_method():
    def members(name, cls):
        return [f"{name}.{m}" for m, v in vars(cls).items() if not m.startswith("_") and (callable(v) or isinstance(v, (property, staticmethod)))]

    def does(value):  # types have no behaviour of their own
        if not inspect.isclass(value):
            return inspect.isfunction(value)
        return not (hasattr(value, "__required_keys__") or issubclass(value, str) or getattr(value, "_is_protocol", False))

    exported = [n for n in pierre_storage.__all__ if does(getattr(pierre_storage, n))]
    return exported + members("GitStorage", pierre_storage.GitStorage) + members("Repo", RepoImpl) + members("CommitBuilder", CommitBuilderImpl)


def general(row):
    """The failures of every method that asks about a repository."""
    by_code = {401: "unauthorized", 403: "forbidden", 404: "not_found", 429: "unavailable", 500: "internal", 503: "unavailable"}

    def expect(code):
        return row.kind(by_code[code]) if row.kind.__name__ == "update" else row.kind(code)

    def by(client, **claims):
        async def run():
            repo = (await fixture()).repo
            await row.call((client or holder(repo=repo.id, **claims)).repo(id=repo.id))

        return run

    async def absent():
        await row.call(STORE.repo(id="team/absent"))

    async def too_often():
        not_found = expect(404)
        while True:
            try:
                await row.call(LIMITED.repo(id="team/absent"))
            except Exception as err:
                try:
                    not_found(err)
                except AssertionError:
                    raise err from None

    async def deleted():
        repo = await fresh()
        await STORE.delete_repo(id=repo.id)
        await row.call(repo)

    def failing(code):
        """One request: the client leaves it to its caller to ask again."""

        async def run():
            before = asked()
            try:
                await row.call(faulty(code).repo(id="x"))
            finally:
                assert asked() - before == 1

        return run

    return {
        "the server fails": (expect(500), failing(500)),
        "the server cannot now": (expect(503), failing(503)),
        "a proxy says so": (row.proxied or (row.kind("unavailable") if row.kind.__name__ == "update" else proxied(row.kind)), failing(502)),
        "an unknown key": (expect(401), by(STRANGER)),
        "an expired token": (expect(401), by(None, scopes=["git:read", "git:write"], exp=int(time.time()) - 3600)),
        "the scope is missing": (expect(403), by(None, scopes=["org:read"])),
        "no repository": (expect(404), absent),
        "too many requests": (expect(429), too_often),
        "a deleted repository": (expect(404), deleted),
    }


async def succeed(call):
    await call()


async def refuse(check, call):
    try:
        await call()
    except Exception as err:
        check(err)
        return
    raise AssertionError("it succeeds")


async def run(name, case):
    try:
        await case
        print(json.dumps({"case": name}))
    except Exception:
        print(json.dumps({"case": name, "error": traceback.format_exc()}))


async def complete():
    rows, methods = sorted(ROWS), sorted(every_method())
    assert rows == methods, (set(rows) ^ set(methods))


async def main():
    await run("every method has a row", complete())
    for method, row in ROWS.items():
        fails = {**(general(row) if row.call else {}), **row.fails}
        print(json.dumps({"method": method, "works": len(row.works), "fails": len(fails)}))
        for name, call in row.works.items():
            await run(f"{method}: {name}", succeed(call))
        for name, (check, call) in fails.items():
            await run(f"{method} fails: {name}", refuse(check, call))


warnings.simplefilter("ignore", DeprecationWarning)
asyncio.run(main())
