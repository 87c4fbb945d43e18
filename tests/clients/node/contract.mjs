// Calls every method of the published client, once with success and once with each failure that is documented of it.
// Prints one JSON line a case. ROUTES names the routes that the server has.
import assert from 'node:assert/strict';
import * as sdk from '@pierre/storage';
import { client } from './contract/client.mjs';
import { commits } from './contract/commits.mjs';
import { reading } from './contract/reading.mjs';
import { refs } from './contract/refs.mjs';
import { repos } from './contract/repos.mjs';
import { api, fixture, fresh, holder, store, stranger, update } from './contract/world.mjs';

const rows = { ...client, ...repos, ...reading, ...refs, ...commits };
const routes = new Set(process.env.ROUTES.split(' '));

// inner are methods that the client's types do not tell of.
const inner = new Set(['constructor', 'generateJWT', 'buildMetadata', 'ensureNotSent', 'normalizePath', 'length', 'name', 'prototype']);
const methods = (prefix, object) => Object.getOwnPropertyNames(object).filter((m) => !inner.has(m)).map((m) => `${prefix}.${m}`);

function everyMethod() {
  const repo = store.repo({ id: 'x' });
  const builder = repo.createCommit({ targetBranch: 'x', commitMessage: 'x', author: { name: 'x', email: 'x' } });
  return [
    ...Object.keys(sdk).filter((name) => typeof sdk[name] === 'function'),
    ...methods('GitStorage', sdk.GitStorage), ...methods('GitStorage', sdk.GitStorage.prototype),
    ...methods('Repo', Object.getPrototypeOf(repo)), ...methods('CommitBuilder', Object.getPrototypeOf(builder)),
  ];
}

// general are the failures of every method that asks about a repository.
function general(row) {
  const update401 = { api: api(401), update: update('unauthorized') }[row.kind ?? 'api'];
  const update403 = { api: api(403), update: update('forbidden') }[row.kind ?? 'api'];
  const update404 = { api: api(404), update: update('not_found') }[row.kind ?? 'api'];
  const as = async (scopes, exp) => {
    const { repo } = await fixture();
    return (await holder({ repo: repo.id, scopes, ...(exp ? { exp } : {}) })).repo({ id: repo.id });
  };
  return {
    'an unknown key': [update401, async () => row.call(stranger.repo({ id: (await fixture()).repo.id }))],
    'an expired token': [update401, async () => row.call(await as(['git:read', 'git:write'], Math.floor(Date.now() / 1000) - 3600))],
    'the scope is missing': [update403, async () => row.call(await as(['org:read']))],
    'no repository': [update404, () => row.call(store.repo({ id: 'team/absent' }))],
    'a deleted repository': [update404, async () => {
      const repo = await fresh();
      await store.deleteRepo({ id: repo.id });
      return row.call(repo);
    }],
  };
}

const report = (line) => console.log(JSON.stringify(line));

async function run(name, check) {
  try {
    await check();
    report({ case: name });
  } catch (err) {
    report({ case: name, error: String(err?.stack ?? err) });
  }
}

await run('every method has a row', () => assert.deepEqual(Object.keys(rows).sort(), everyMethod().sort()));
for (const [method, row] of Object.entries(rows)) {
  const works = Object.entries(row.works);
  const fails = Object.entries({ ...(row.call ? general(row) : {}), ...row.fails });
  report({ method, works: works.length, fails: fails.length });
  if (row.route && !routes.has(row.route)) {
    report({ case: method, absent: row.route });
    continue;
  }
  await run(`${method} has a success`, () => assert.ok(works.length > 0));
  for (const [name, check] of works) await run(`${method}: ${name}`, check);
  for (const [name, [expect, call]] of fails) await run(`${method} fails: ${name}`, () => assert.rejects(async () => call(), expect));
}
