// A pass over the published client's methods, with their documented failures.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { gunzipSync } from 'node:zlib';
import { ApiError, GitStorage, OP_NO_FORCE_PUSH, OP_NO_PUSH, RefUpdateError } from '@pierre/storage';

const store = new GitStorage({
  key: process.env.PIERRE_PRIVATE_KEY,
  name: 'acme',
  apiBaseUrl: process.env.API_BASE_URL,
  storageBaseUrl: process.env.STORAGE_BASE_URL,
});
const author = { name: 'Sandbox worker', email: 'worker@example.com' };
const zero = '0'.repeat(40);

const refuses = (call, reason) => assert.rejects(call, (err) => {
  assert.ok(err instanceof RefUpdateError, `${err?.name}: ${err}`);
  assert.equal(err.reason, reason);
  return true;
});
const fails = (call, status) => assert.rejects(call, (err) => {
  assert.ok(err instanceof ApiError, `${err?.name}: ${err}`);
  assert.equal(err.status, status);
  return true;
});

const steps = {
  async 'create, find and list repositories'() {
    const repo = await store.createRepo({ id: 'team/sdk' });
    assert.equal(repo.id, 'team/sdk');
    await assert.rejects(store.createRepo({ id: 'team/sdk' }), /already exists/);
    const found = await store.findOne({ id: 'team/sdk' });
    assert.equal(found.defaultBranch, 'main');
    assert.ok(!Number.isNaN(Date.parse(found.createdAt)));
    assert.equal(await store.findOne({ id: 'team/absent' }), null);
    const named = await store.createRepo({ id: 'team/trunk', defaultBranch: 'trunk' });
    assert.equal(named.defaultBranch, 'trunk');
    assert.equal((await store.findOne({ id: 'team/trunk' })).defaultBranch, 'trunk');
    const first = await store.listRepos({ limit: 1 });
    assert.equal(first.repos.length, 1);
    assert.ok(first.hasMore);
    const rest = await store.listRepos({ cursor: first.nextCursor });
    const names = [...first.repos, ...rest.repos].map((r) => r.url).sort();
    assert.deepEqual(names, ['team/sdk', 'team/trunk']);
    assert.deepEqual((await store.listRepos({ q: 'TRUNK' })).repos.map((r) => r.url), ['team/trunk']);
  },

  async 'an empty repository'() {
    const repo = store.repo({ id: 'team/trunk', defaultBranch: 'trunk' });
    assert.deepEqual((await repo.listBranches()).branches, []);
    await fails(repo.listFiles(), 404);
    await refuses(() => repo.createCommit({ targetBranch: 'trunk', commitMessage: 'x', author, expectedHeadSha: 'a'.repeat(40) })
      .addFileFromString('a', 'a').send(), 'precondition_failed');
  },

  async 'commits in every form'() {
    const repo = store.repo({ id: 'team/sdk' });
    const large = Buffer.alloc(9 << 20, 'cairn'); // three chunks
    const first = await repo.createCommit({ targetBranch: 'main', commitMessage: 'Begin', author })
      .addFileFromString('README.md', '# hello\n')
      .addFileFromString('bin/run', '#!/bin/sh\n', { mode: '100755' })
      .addFileFromString('link', 'README.md', { mode: '120000' })
      .addFile('empty', new Uint8Array(0))
      .addFile('docs/large.bin', large)
      .addFileFromString('docs/deep/er/file.txt', 'deep\n')
      .send();
    assert.equal(first.refUpdate.oldSha, zero);
    assert.equal(first.targetBranch, 'main');
    assert.equal(first.blobCount, 6);
    const second = await repo.createCommit({ targetBranch: 'main', commitMessage: 'Change', author, expectedHeadSha: first.commitSha })
      .addFileFromString('README.md', '# hello again\n')
      .deletePath('docs/deep')
      .send();
    assert.equal(second.refUpdate.oldSha, first.commitSha);
    const same = () => repo.createCommit({ targetBranch: 'main', commitMessage: 'Nothing', author })
      .addFileFromString('README.md', '# hello again\n').send();
    await refuses(same, 'precondition_failed');
    const stale = () => repo.createCommit({ targetBranch: 'main', commitMessage: 'Stale', author, expectedHeadSha: first.commitSha })
      .addFileFromString('x', 'x').send();
    await refuses(stale, 'precondition_failed');
    for (const path of ['.git/config', 'a/../b', 'a//b', '.GIT/x', 'git~1/x']) {
      const bad = () => repo.createCommit({ targetBranch: 'main', commitMessage: 'Bad', author }).addFileFromString(path, 'x').send();
      await refuses(bad, 'invalid');
    }
    const branched = await repo.createCommit({ targetBranch: 'feature', baseBranch: 'main', commitMessage: 'Branch', author, expectedHeadSha: second.commitSha })
      .addFileFromString('feature.txt', 'f\n').send();
    assert.equal(branched.refUpdate.oldSha, zero);
    const absent = () => repo.createCommit({ targetBranch: 'other', baseBranch: 'absent', commitMessage: 'x', author })
      .addFileFromString('x', 'x').send();
    await refuses(absent, 'not_found');
    const session = await repo.createCommit({ targetBranch: 'sessions/1', baseBranch: 'main', ephemeral: true, commitMessage: 'Save', author })
      .addFileFromString('state.json', '{}\n').send();
    const onSession = await repo.createCommit({ targetBranch: 'sessions/2', baseBranch: 'sessions/1', ephemeral: true, ephemeralBase: true, commitMessage: 'Save', author })
      .addFileFromString('state.json', '{"a":1}\n').send();
    assert.notEqual(onSession.commitSha, session.commitSha);
    const denied = () => repo.createCommit({ targetBranch: 'main', commitMessage: 'x', author, refPolicies: [{ pattern: 'main', ops: [OP_NO_PUSH] }] })
      .addFileFromString('x', 'x').send();
    await refuses(denied, 'forbidden');
  },

  async 'files'() {
    const repo = store.repo({ id: 'team/sdk' });
    const listed = await repo.listFiles();
    assert.deepEqual(listed.paths, ['README.md', 'bin/run', 'docs/large.bin', 'empty', 'link']);
    assert.equal(listed.ref, 'main');
    const modes = Object.fromEntries(listed.entries.map((e) => [e.path, `${e.type} ${e.mode}`]));
    assert.equal(modes['bin/run'], 'blob 100755');
    assert.equal(modes.link, 'symlink 120000');
    assert.equal(modes.docs, 'tree 040000');
    const one = await repo.listFiles({ limit: 1 });
    assert.ok(one.hasMore && one.nextCursor);
    const flat = await repo.listFiles({ recursive: false, path: 'docs' });
    assert.deepEqual(flat.paths, ['docs/large.bin']);
    const session = await repo.listFiles({ ref: 'sessions/1', ephemeral: true });
    assert.ok(session.paths.includes('state.json'));
    await fails(repo.listFiles({ ref: 'sessions/1' }), 404);
    await fails(repo.listFiles({ ref: 'absent' }), 404);

    const file = await repo.getFileStream({ path: 'README.md' });
    assert.equal(await file.text(), '# hello again\n');
    const part = await repo.getFileStream({ path: 'docs/large.bin', headers: { range: 'bytes=5-14' } });
    assert.equal(part.status, 206);
    assert.equal(await part.text(), 'cairncairn');
    assert.equal(part.headers.get('content-range'), `bytes 5-14/${9 << 20}`);
    const head = await repo.headFile({ path: 'docs/large.bin' });
    assert.equal(head.size, 9 << 20);
    assert.equal(head.etag, `"${head.blobSha}"`);
    const main = (await repo.listBranches()).branches.find((b) => b.name === 'main');
    assert.match(head.lastCommitSha, /^[0-9a-f]{40}$/);
    assert.notEqual(head.lastCommitSha, main.headSha);
    const unchanged = await repo.headFile({ path: 'README.md', headers: { ifNoneMatch: (await repo.headFile({ path: 'README.md' })).etag } });
    assert.equal(unchanged.status, 304);
    await fails(repo.getFileStream({ path: 'absent' }), 404);
    await fails(repo.getFileStream({ path: 'docs' }), 404);
    const beyond = await repo.getFileStream({ path: 'docs/large.bin', headers: { range: `bytes=${9 << 20}-` } });
    assert.equal(beyond.status, 416);
    assert.equal(beyond.headers.get('content-range'), `bytes */${9 << 20}`);
    assert.equal(await (await repo.getFileStream({ path: 'state.json', ref: 'sessions/2', ephemeral: true })).text(), '{"a":1}\n');
  },

  async 'archives'() {
    const repo = store.repo({ id: 'team/sdk' });
    const tar = async (options) => {
      const archive = await repo.getArchiveStream(options);
      const bytes = Buffer.from(await archive.arrayBuffer());
      gunzipSync(bytes); // complete, with its checksum
      return execFileSync('tar', ['-tzf', '-'], { input: bytes }).toString().split('\n').filter((p) => p && !p.endsWith('/'));
    };
    assert.deepEqual((await tar()).sort(), ['README.md', 'bin/run', 'docs/large.bin', 'empty', 'link']);
    assert.deepEqual(await tar({ includeGlobs: ['docs/**'] }), ['docs/large.bin']);
    assert.deepEqual((await tar({ excludeGlobs: ['docs/**', 'bin/**'], archivePrefix: 'project/' })).sort(), ['project/README.md', 'project/empty', 'project/link']);
    assert.ok(!(await tar({ maxBlobSize: 1024 })).includes('docs/large.bin'));
    const session = (await repo.listBranches({ ephemeral: true })).branches.find((b) => b.name === 'sessions/1');
    assert.ok((await tar({ ref: session.headSha })).includes('state.json'));
    await fails(repo.getArchiveStream({ ref: 'b'.repeat(40) }), 404);
    await fails(repo.getArchiveStream({ archivePrefix: '../up' }), 400);
  },

  async 'branches'() {
    const repo = store.repo({ id: 'team/sdk' });
    const created = await repo.createBranch({ baseBranch: 'main', targetBranch: 'release' });
    assert.equal(created.targetBranch, 'release');
    assert.equal(created.targetIsEphemeral, false);
    await fails(repo.createBranch({ baseBranch: 'main', targetBranch: 'release' }), 409);
    await fails(repo.createBranch({ baseBranch: 'absent', targetBranch: 'x' }), 404);
    await fails(repo.createBranch({ baseBranch: 'main', targetBranch: 'bad..name' }), 400);
    const promoted = await repo.createBranch({ baseBranch: 'sessions/1', baseIsEphemeral: true, targetBranch: 'promoted' });
    assert.equal(promoted.commitSha, (await repo.listBranches({ ephemeral: true })).branches.find((b) => b.name === 'sessions/1').headSha);
    await repo.createBranch({ baseBranch: 'main', targetBranch: 'release', targetIsEphemeral: true });
    const denied = repo.createBranch({ baseBranch: 'main', targetBranch: 'kept', refPolicies: [{ pattern: 'kept', ops: [OP_NO_PUSH] }] });
    await fails(denied, 403);
    const deleted = await repo.deleteBranch({ name: 'release' });
    assert.equal(deleted.name, 'release');
    assert.equal(deleted.ephemeral, false);
    await fails(repo.deleteBranch({ name: 'release' }), 404);
    await fails(repo.deleteBranch({ name: 'main' }), 409);
    const kept = repo.deleteBranch({ name: 'promoted', refPolicies: [{ pattern: '*', ops: [OP_NO_FORCE_PUSH] }] });
    await fails(kept, 403);
    assert.ok((await repo.listBranches({ ephemeral: true })).branches.some((b) => b.name === 'release'));
    await repo.deleteBranch({ name: 'release', ephemeral: true });
  },

  async 'forks'() {
    const source = store.repo({ id: 'team/sdk' });
    const fork = await store.createRepo({ id: 'team/fork', baseRepo: { id: 'team/sdk' } });
    const names = async (repo, options) => (await repo.listBranches(options)).branches.map((b) => b.name).sort();
    assert.deepEqual(await names(fork), await names(source));
    assert.deepEqual(await names(fork, { ephemeral: true }), []);
    const one = await store.createRepo({ id: 'team/one', baseRepo: { id: 'team/sdk', ref: 'feature' } });
    assert.equal((await one.listBranches()).branches.length, 1);
    await assert.rejects(store.createRepo({ id: 'team/none', baseRepo: { id: 'team/absent' } }));
    await fork.createCommit({ targetBranch: 'main', commitMessage: 'Fork', author }).addFileFromString('fork.txt', 'x\n').send();
    assert.ok(!(await source.listFiles()).paths.includes('fork.txt'));
    const session = (await source.listBranches({ ephemeral: true })).branches.find((b) => b.name === 'sessions/2');
    await fails(fork.getArchiveStream({ ref: session.headSha }), 404);
  },

  async 'remote URLs'() {
    const repo = store.repo({ id: 'team/sdk' });
    const git = (...args) => execFileSync('git', args, { stdio: ['ignore', 'pipe', 'pipe'] }).toString();
    const normal = git('ls-remote', await repo.getRemoteURL({ ttl: 60 }));
    assert.ok(normal.includes('refs/heads/main') && !normal.includes('sessions/'));
    assert.ok(git('ls-remote', await repo.getEphemeralRemoteURL({ ttl: 60 })).includes('refs/heads/sessions/1'));
    git('clone', '-q', await repo.getRemoteURL({ ttl: 60 }), 'work');
    git('-C', 'work', 'switch', '-q', '-c', 'pushed');
    git('-C', 'work', '-c', 'user.name=w', '-c', 'user.email=w@example.com', 'commit', '-q', '--allow-empty', '-m', 'Push');
    git('-C', 'work', 'push', '-q', await repo.getImportRemoteURL({ ttl: 60 }), 'HEAD:refs/heads/imported');
    const restricted = await repo.getRemoteURL({ ttl: 60, refPolicies: [{ pattern: 'main', ops: [OP_NO_PUSH] }] });
    git('-C', 'work', 'push', '-q', restricted, 'pushed');
    assert.throws(() => git('-C', 'work', 'push', restricted, 'HEAD:main'), /denied by policy/);
    assert.throws(() => git('ls-remote', 'https://' + process.env.STORAGE_BASE_URL + '/team/sdk.git'));
  },

  async 'delete a repository'() {
    const gone = await store.deleteRepo({ id: 'team/one' });
    assert.equal(typeof gone.message, 'string');
    assert.ok(gone.repoId);
    assert.equal(await store.findOne({ id: 'team/one' }), null);
    await assert.rejects(store.deleteRepo({ id: 'team/one' }), /already deleted/);
    await assert.rejects(store.createRepo({ id: 'team/one' }));
    await store.deleteRepo({ id: 'team/sdk' });
    const fork = store.repo({ id: 'team/fork' });
    assert.ok((await fork.listFiles()).paths.includes('docs/large.bin'), 'the fork outlives its parent');
  },
};

for (const [name, step] of Object.entries(steps)) {
  try {
    await step();
  } catch (err) {
    console.error(`${name}: ${err?.stack ?? err}`);
    process.exit(1);
  }
  console.log(`ok ${name}`);
}
