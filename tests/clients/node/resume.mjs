// The guide "Resume Sandbox Work", line by line, with the published client. Only the two base URLs are added.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { GitStorage, RefUpdateError } from '@pierre/storage';

const repositoryId = process.env.REPOSITORY_ID;
const sessionId = process.env.SESSION_ID;
const tipSha = process.env.TIP_SHA;

const store = new GitStorage({
  key: process.env.PIERRE_PRIVATE_KEY,
  name: 'acme',
  apiBaseUrl: process.env.API_BASE_URL,
  storageBaseUrl: process.env.STORAGE_BASE_URL,
});

const repo = await store.findOne({ id: repositoryId });
assert.equal(repo.id, repositoryId);
assert.equal(repo.defaultBranch, 'main');

const sessionBranch = `sessions/${sessionId}`;

// Restore the files: an archive.
const archive = await repo.getArchiveStream({ ref: tipSha });
execFileSync('tar', ['-xzf', '-'], { input: Buffer.from(await archive.arrayBuffer()) });
assert.ok(existsSync('src/auth.ts'), 'the archive holds the session\'s file');

// Restore the files: Git.
const readUrl = await repo.getRemoteURL({
  permissions: ['git:read'],
  ttl: 600,
});
execFileSync('/bin/sh', ['-ec', `
git clone --no-checkout "$READ_URL" work
git -C work fetch origin "$TIP_SHA"
git -C work switch -c "$SESSION_BRANCH" "$TIP_SHA"
`], { env: { ...process.env, READ_URL: readUrl, SESSION_BRANCH: sessionBranch, TIP_SHA: tipSha }, stdio: ['ignore', 'ignore', 'pipe'] });
assert.ok(existsSync('work/src/auth.ts'), 'the checkout holds the session\'s file');

// Reject stale writes.
import { readFile } from 'node:fs/promises';

const updatedAuthSource = await readFile('src/auth.ts', 'utf8') + '// resumed\n';

const write = () => repo
  .createCommit({
    author: { email: 'worker@example.com', name: 'Sandbox worker' },
    commitMessage: 'Resume sandbox work',
    ephemeral: true,
    expectedHeadSha: tipSha,
    targetBranch: sessionBranch,
  })
  .addFileFromString('src/auth.ts', updatedAuthSource)
  .send();

const nextState = await write();
assert.match(nextState.commitSha, /^[0-9a-f]{40}$/);
assert.equal(nextState.refUpdate.oldSha, tipSha);
assert.equal(nextState.refUpdate.newSha, nextState.commitSha);

await assert.rejects(write, (err) => {
  assert.ok(err instanceof RefUpdateError, `${err}`);
  assert.equal(err.reason, 'precondition_failed');
  assert.equal(err.status, 'precondition_failed');
  return true;
});

// The lost tip: follow nextCursor through the ephemeral branches while others appear.
async function find(name, between) {
  let pages = 0;
  const seen = new Set();
  for (let cursor; ;) {
    const page = await repo.listBranches({ ephemeral: true, cursor });
    pages++;
    for (const branch of page.branches) {
      assert.ok(!seen.has(branch.name), `${branch.name} is listed twice`);
      seen.add(branch.name);
    }
    const found = page.branches.find((b) => b.name === name);
    if (found) return { found, pages, seen };
    if (!page.nextCursor) return { pages, seen };
    cursor = page.nextCursor;
    await between();
  }
}
let created = 0;
const createOthers = async () => {
  for (const name of [`a/early-${created}`, `z/late-${created}`]) {
    await repo.createBranch({ baseBranch: 'main', targetBranch: name, targetIsEphemeral: true });
    created++;
  }
};
const { found, pages, seen } = await find(sessionBranch, createOthers);
assert.equal(found?.headSha, nextState.commitSha);
assert.ok(!Number.isNaN(Date.parse(found.createdAt)));
assert.ok(pages > 1, `found on page ${pages}`);
// And all thousand that were there from the start are found by one that looks for something else.
const all = await find('absent', createOthers);
assert.equal(all.found, undefined);
const fillers = [...all.seen].filter((name) => /^[az]\/\d{4}$/.test(name));
assert.equal(fillers.length, Number(process.env.FILLERS));
console.log(JSON.stringify({ tip: nextState.commitSha, pages, created, seen: seen.size, all: all.seen.size }));
