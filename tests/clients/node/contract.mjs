// Calls every method of the published client, once with success and once with each failure that is documented of it.
// Prints one JSON line a case.
import assert from 'node:assert/strict';
import * as sdk from '@pierre/storage';
import { client } from './contract/client.mjs';
import { commits } from './contract/commits.mjs';
import { reading } from './contract/reading.mjs';
import { refs } from './contract/refs.mjs';
import { repos } from './contract/repos.mjs';
import { api, faulty, fixture, fresh, holder, limited, once, proxied, store, stranger, update } from './contract/world.mjs';

const rows = { ...client, ...repos, ...reading, ...refs, ...commits };

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
  const labels = { 401: 'unauthorized', 403: 'forbidden', 404: 'not_found', 429: 'unavailable', 500: 'internal', 503: 'unavailable' };
  const refused = (status) => (row.kind === 'update' ? update(labels[status]) : api(status));
  const as = async (scopes, exp) => {
    const { repo } = await fixture();
    return (await holder({ repo: repo.id, scopes, ...(exp ? { exp } : {}) })).repo({ id: repo.id });
  };
  return {
    'an unknown key': [refused(401), async () => row.call(stranger.repo({ id: (await fixture()).repo.id }))],
    'an expired token': [refused(401), async () => row.call(await as(['git:read', 'git:write'], Math.floor(Date.now() / 1000) - 3600))],
    'the scope is missing': [refused(403), async () => row.call(await as(['org:read']))],
    'no repository': [refused(404), () => row.call(store.repo({ id: 'team/absent' }))],
    'too many requests': [refused(429), async () => {
      for (;;) {
        try {
          await row.call(limited.repo({ id: 'team/absent' }));
        } catch (err) {
          if (err.status !== 404 && err.reason !== 'not_found') throw err;
        }
      }
    }],
    'a deleted repository': [refused(404), async () => {
      const repo = await fresh();
      await store.deleteRepo({ id: repo.id });
      return row.call(repo);
    }],
    'the server fails': [refused(500), () => once(() => row.call(faulty(500).repo({ id: 'x' })))],
    'the server cannot now': [refused(503), () => once(() => row.call(faulty(503).repo({ id: 'x' })))],
    'a proxy says so': [row.proxied ?? proxied(502), () => once(() => row.call(faulty(502).repo({ id: 'x' })))],
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
  await run(`${method} has a success`, () => assert.ok(works.length > 0));
  for (const [name, check] of works) await run(`${method}: ${name}`, check);
  for (const [name, [expect, call]] of fails) await run(`${method} fails: ${name}`, () => assert.rejects(async () => call(), expect));
}
