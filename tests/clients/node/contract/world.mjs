// What the rows of the contract stand on: clients with good and bad credentials, a repository to read, and what the
// published client must throw.
import assert from 'node:assert/strict';
import { generateKeyPairSync, randomBytes, randomUUID } from 'node:crypto';
import { SignJWT, importPKCS8 } from 'jose';
import { ApiError, GitStorage, OP_NO_FORCE_PUSH, OP_NO_PUSH, RefUpdateError } from '@pierre/storage';

export const key = process.env.PIERRE_PRIVATE_KEY;
export const urls = { name: 'acme', apiBaseUrl: process.env.API_BASE_URL, storageBaseUrl: process.env.STORAGE_BASE_URL };
export const store = new GitStorage({ key, ...urls });
export const author = { name: 'Sandbox worker', email: 'worker@example.com' };
export const zero = '0'.repeat(40);
export const nobody = 'b'.repeat(40);
export const sha = /^[0-9a-f]{40}$/;
export const closed = [{ pattern: '*', ops: [OP_NO_PUSH] }];
export const forward = [{ pattern: '*', ops: [OP_NO_FORCE_PUSH] }];

// stranger signs with a key that the server does not know.
const pair = generateKeyPairSync('ec', { namedCurve: 'P-256' });
export const stranger = new GitStorage({ key: pair.privateKey.export({ type: 'pkcs8', format: 'pem' }), ...urls });

// limited asks a server that answers one request a second.
export const limited = new GitStorage({ key: process.env.LIMITED_PRIVATE_KEY, name: 'acme', apiBaseUrl: process.env.LIMITED_API_BASE_URL });

// narrow asks a server that has room for 24 KiB more and for no other repository, and no custom notes refs.
export const narrow = new GitStorage({ key: process.env.NARROW_PRIVATE_KEY, name: 'acme', apiBaseUrl: process.env.NARROW_API_BASE_URL });
export const noise = (kib) => randomBytes(kib << 10);

// faulty asks a server, or a proxy before one, that answers everything with a status.
export const faulty = (status) => new GitStorage({ key, name: 'acme', apiBaseUrl: `${process.env.FAULTY_URL}/${status}` });
const asked = async () => Number(await (await fetch(`${process.env.FAULTY_URL}/asked`)).text());

// once makes a call that asks one time: the client leaves it to its caller to ask again.
export async function once(call) {
  const before = await asked();
  try {
    return await call();
  } finally {
    assert.equal(await asked() - before, 1);
  }
}

// holder is a client that sends one token for everything.
export async function holder(claims) {
  const now = Math.floor(Date.now() / 1000);
  const token = await new SignJWT({ iss: 'acme', sub: 'contract', iat: now, exp: now + 600, ...claims })
    .setProtectedHeader({ alg: 'ES256', typ: 'JWT' })
    .sign(await importPKCS8(key, 'ES256'));
  return new GitStorage({ token, ...urls });
}

// api, update and plain say what a call must throw.
export const api = (status, message) => (err) => {
  assert.ok(err instanceof ApiError, `${err?.name}: ${err?.stack}`);
  assert.equal(err.status, status, err.message);
  assert.ok(err.statusText && /^https?:\/\/127\.0\.0\.1:/.test(err.url), err.url);
  if (err.method !== 'HEAD') {
    assert.equal(typeof err.body.error, 'string');
    assert.equal(err.message, err.body.error);
    assert.equal(err.body.status, status);
  }
  if (message) assert.match(err.message, message);
  return true;
};
export const update = (reason, message) => (err) => {
  assert.ok(err instanceof RefUpdateError, `${err?.name}: ${err?.stack}`);
  assert.equal(err.reason, reason, err.message);
  assert.equal(err.status, reason);
  assert.ok(err.message.trim());
  if (message) assert.match(err.message, message);
  return true;
};
export const quota = (status, check) => (err) => {
  check(status)(err);
  const { code, limit, used, needed } = err.body;
  assert.deepEqual([code, limit], [status === 413 ? 'payload_too_large' : 'quota_exceeded', limit]);
  assert.ok(limit > 0 && used >= 0 && needed > 0, JSON.stringify(err.body));
  return true;
};
// proxied is an answer that is no JSON: its text is the message.
export const proxied = (status) => (err) => {
  assert.ok(err instanceof ApiError, `${err?.name}: ${err?.stack}`);
  assert.equal(err.status, status);
  if (err.method !== 'HEAD') assert.match(err.message, /502 Bad Gateway/);
  return true;
};
export const plain = (message) => (err) => {
  assert.ok(!(err instanceof ApiError) && !(err instanceof RefUpdateError), `${err?.name}: ${err?.stack}`);
  assert.notEqual(err.name, 'ZodError', err.stack);
  assert.match(err.message, message);
  return true;
};

export const fresh = (options) => store.createRepo({ id: `contract/${randomUUID()}`, ...options });

// commit writes text files, or deletes those whose content is null.
export function commit(repo, targetBranch, files, options = {}) {
  const builder = repo.createCommit({ targetBranch, commitMessage: `Change ${Object.keys(files)}`, author, ...options });
  for (const [path, content] of Object.entries(files)) {
    if (content === null) builder.deletePath(path);
    else builder.addFileFromString(path, content);
  }
  return builder.send();
}

// history makes a repository with two commits on main, a branch beside them, and an ephemeral one.
export async function history() {
  const repo = await fresh();
  const first = await commit(repo, 'main', { 'README.md': '# Hello\nsecond line\nthird line\n', 'src/app.js': 'function app() {\n  return 1;\n}\n', 'src/deep/util.js': 'export const a = 1;\n' });
  const second = await commit(repo, 'main', { 'README.md': '# Hello\nchanged line\nthird line\n' }, { committer: { name: 'Bot', email: 'bot@example.com' } });
  const feature = await commit(repo, 'feature', { 'feature.txt': 'feature\n' }, { baseBranch: 'main' });
  const session = await commit(repo, 'session', { 'state.json': '{}\n' }, { baseBranch: 'main', ephemeral: true });
  return { repo, first: first.commitSha, tip: second.commitSha, feature: feature.commitSha, session: session.commitSha };
}

// fixture is a history that the rows only read.
let shared;
export const fixture = () => (shared ??= history());

export const names = async (repo, options) => (await repo.listBranches(options)).branches.map((b) => b.name).sort();

// pages reads a list to its end, one item a page.
export async function pages(list, member) {
  const items = [];
  let cursor;
  do {
    const page = await list({ limit: 1, ...(cursor ? { cursor } : {}) });
    assert.equal(page[member].length, 1);
    items.push(...page[member]);
    assert.equal(Boolean(page.nextCursor), page.hasMore);
    cursor = page.nextCursor;
  } while (cursor);
  return items;
}

// until repeats a check while a sync is under way.
export async function until(check) {
  for (const end = Date.now() + 60_000; ;) {
    try {
      return await check();
    } catch (err) {
      if (Date.now() > end) throw err;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }
}
