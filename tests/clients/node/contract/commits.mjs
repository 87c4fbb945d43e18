// Commits in every form.
import assert from 'node:assert/strict';
import { OP_VERIFY_SIG, RefUpdateError } from '@pierre/storage';
import { author, closed, fixture, fresh, history, narrow, noise, nobody, plain, sha, stranger, update, zero } from './world.mjs';

const begin = (repo, options = {}) => repo.createCommit({ targetBranch: 'main', commitMessage: 'Change', author, ...options });
const text = async (repo, path, options) => (await repo.getFileStream({ path, ...options })).text();

// moved is a stale guard: it tells where the branch is.
const moved = (err) => {
  update('precondition_failed')(err);
  assert.match(err.refUpdate.newSha, sha);
  return true;
};

const patch = `diff --git a/README.md b/README.md
--- a/README.md
+++ b/README.md
@@ -1,3 +1,3 @@
 # Hello
-changed line
+patched line
 third line
diff --git a/added.txt b/added.txt
new file mode 100644
index 0000000000000000000000000000000000000000..ce013625030ba8dba906f756967f9e9ca394464a
--- /dev/null
+++ b/added.txt
@@ -0,0 +1 @@
+hello
`;
const apply = (repo, options = {}) => repo.createCommitFromDiff({ targetBranch: 'main', commitMessage: 'Apply', author, diff: patch, ...options });
const restore = (repo, options) => repo.restoreCommit({ targetBranch: 'main', author, ...options });

// over is a quota that has no room: the status is the server's word, which the client knows or not.
const over = (reason, status, message) => (err) => {
  assert.ok(err instanceof RefUpdateError, err?.stack);
  assert.deepEqual([err.reason, err.status], [reason, status]);
  assert.match(err.message, message);
  return true;
};
const adding = (line) => `diff --git a/large b/large\nnew file mode 100644\n--- /dev/null\n+++ b/large\n@@ -0,0 +1 @@\n+${line}\n`;

export const commits = {
  'Repo.createCommit': {
    works: {
      async 'every option'() {
        const { repo, tip } = await history();
        const done = await repo.createCommit({
          targetBranch: 'refs/heads/next', baseBranch: 'main', expectedHeadSha: tip, commitMessage: ' Message \n',
          author, committer: { name: 'Bot', email: 'bot@example.com' }, ephemeral: false, ephemeralBase: false, ttl: 60,
        }).addFileFromString('n', 'n').send();
        assert.equal(done.targetBranch, 'next');
        assert.equal(done.refUpdate.oldSha, zero);
        const { commit: c } = await repo.getCommit({ sha: done.commitSha });
        assert.deepEqual([c.message, c.authorName, c.committerName, c.parentShas], ['Message', author.name, 'Bot', [tip]]);
      },
      async 'the older targetRef'() {
        const { repo } = await history();
        const done = await repo.createCommit({ targetRef: 'refs/heads/main', commitMessage: 'x', author }).addFileFromString('n', 'n').send();
        assert.equal(done.targetBranch, 'main');
      },
      async 'ephemeral, upon ephemeral'() {
        const { repo, session } = await history();
        const done = await begin(repo, { targetBranch: 'session-2', baseBranch: 'session', ephemeral: true, ephemeralBase: true }).addFileFromString('n', 'n').send();
        assert.deepEqual((await repo.listCommits({ branch: 'session-2', ephemeral: true })).commits.slice(0, 2).map((c) => c.sha), [done.commitSha, session]);
        assert.deepEqual((await repo.listBranches()).branches.map((b) => b.name), ['main', 'feature']);
      },
    },
    fails: {
      'no branch': [plain(/targetBranch is required/), async () => begin((await fixture()).repo, { targetBranch: ' ' })],
      'no message': [plain(/commitMessage is required/), async () => begin((await fixture()).repo, { commitMessage: ' ' })],
      'no author': [plain(/author name and email/), async () => begin((await fixture()).repo, { author: { name: '', email: '' } })],
      'an ephemeral base without a base': [plain(/requires baseBranch/), async () => begin((await fixture()).repo, { ephemeralBase: true })],
      'another ref': [plain(/refs/), async () => begin((await fixture()).repo, { targetBranch: 'refs/tags/x' })],
    },
  },
  'CommitBuilder.addFile': {
    works: {
      async 'from every kind of source'() {
        const repo = await fresh();
        const bytes = new TextEncoder().encode('bytes');
        const sources = {
          string: 'text', bytes, buffer: bytes.buffer, blob: new Blob(['blob']), file: new File(['file'], 'f'),
          stream: new Blob(['stream']).stream(), iterable: [bytes, bytes], generator: (async function* chunks() { yield 'a'; yield bytes; })(), empty: new Uint8Array(0),
        };
        const builder = begin(repo);
        for (const [name, source] of Object.entries(sources)) builder.addFile(name, source);
        const done = await builder.addFile('/run', '#!/bin/sh\n', { mode: '100755' }).send();
        assert.equal(done.blobCount, 9, 'bytes and buffer are one blob');
        assert.equal(await text(repo, 'iterable'), 'bytesbytes');
        assert.equal(await text(repo, 'generator'), 'abytes');
        assert.equal(await text(repo, 'stream'), 'stream');
        assert.equal(await text(repo, 'empty'), '');
        assert.equal((await repo.listFiles()).entries.find((e) => e.path === 'run').mode, '100755');
      },
      async 'in pieces of 4 MiB'() {
        const repo = await fresh();
        const size = (9 << 20) + 1;
        const large = Buffer.alloc(size, 'cairn');
        await begin(repo).addFile('large', large).addFile('exact', large.subarray(0, 4 << 20)).send();
        const back = Buffer.from(await (await repo.getFileStream({ path: 'large' })).arrayBuffer());
        assert.ok(back.equals(large));
        assert.equal((await repo.headFile({ path: 'exact' })).size, 4 << 20);
      },
      async 'a folder in place of a file'() {
        const repo = await fresh();
        await begin(repo).addFile('a', 'file').send();
        await begin(repo).addFile('a/b', 'below').send();
        assert.deepEqual((await repo.listFiles()).paths, ['a/b']);
      },
    },
    fails: {
      'no path': [plain(/non-empty/), async () => begin((await fixture()).repo).addFile(' ', 'x')],
      'after send': [plain(/reused/), async () => {
        const builder = begin(await fresh()).addFile('a', 'a');
        await builder.send();
        builder.addFile('b', 'b');
      }],
      ...Object.fromEntries(['.git/config', 'a/../b', 'a//b', '.GIT/x', 'git~1/x', 'a\0b'].map((path) => [`the path ${JSON.stringify(path)}`,
        [update('invalid'), async () => begin((await fixture()).repo).addFile(path, 'x').send()]])),
      'a bad mode': [update('invalid'), async () => begin((await fixture()).repo).addFile('a', 'x', { mode: '100600' }).send()],
    },
  },
  'CommitBuilder.addFileFromString': {
    works: {
      async 'in other encodings'() {
        const repo = await fresh();
        await begin(repo).addFileFromString('utf8', 'ü').addFileFromString('latin1', 'ü', { encoding: 'latin1' }).addFileFromString('base64', 'AAE=', { encoding: 'base64', mode: '100755' }).send();
        const bytes = async (path) => [...new Uint8Array(await (await repo.getFileStream({ path })).arrayBuffer())];
        assert.deepEqual([await bytes('utf8'), await bytes('latin1'), await bytes('base64')], [[0xc3, 0xbc], [0xfc], [0, 1]]);
      },
    },
    fails: { 'no path': [plain(/non-empty/), async () => begin((await fixture()).repo).addFileFromString('', 'x')] },
  },
  'CommitBuilder.deletePath': {
    works: {
      async 'a file, and a folder'() {
        const { repo } = await history();
        await begin(repo).deletePath('README.md').send();
        await begin(repo).deletePath('src/deep').deletePath('absent').addFileFromString('new', 'x').send();
        assert.deepEqual((await repo.listFiles()).paths, ['new', 'src/app.js']);
      },
    },
    fails: {
      'nothing there': [update('precondition_failed', /no changes/), async () => begin((await fixture()).repo).deletePath('absent').send()],
      'no path': [plain(/non-empty/), async () => begin((await fixture()).repo).deletePath('')],
    },
  },
  'CommitBuilder.send': {
    kind: 'update',
    call: (repo) => begin(repo).addFileFromString('x', 'x').send(),
    proxied: update('failed', /502 Bad Gateway/),
    works: {
      async 'the first commit'() {
        const done = await begin(await fresh()).addFileFromString('a', 'a').send();
        for (const id of [done.commitSha, done.treeSha]) assert.match(id, sha);
        assert.deepEqual(done.refUpdate, { branch: 'main', oldSha: zero, newSha: done.commitSha });
        assert.deepEqual([done.targetBranch, done.blobCount], ['main', 1]);
        assert.ok(done.packBytes > 0);
      },
      async 'upon what is expected'() {
        const { repo, tip } = await history();
        const done = await begin(repo, { expectedHeadSha: tip }).addFileFromString('a', 'a').send();
        assert.deepEqual(done.refUpdate, { branch: 'main', oldSha: tip, newSha: done.commitSha });
      },
      async 'only the first of two that expect the same'() {
        const { repo, tip } = await history();
        const both = await Promise.allSettled(['a', 'b'].map((name) => begin(repo, { expectedHeadSha: tip }).addFileFromString(name, name).send()));
        assert.deepEqual(both.map((r) => r.status).sort(), ['fulfilled', 'rejected']);
        moved(both.find((r) => r.status === 'rejected').reason);
      },
    },
    fails: {
      'the branch moved': [moved, async () => {
        const { repo, first, tip } = await history();
        await begin(repo, { expectedHeadSha: first }).addFileFromString('x', 'x').send().catch((err) => {
          assert.equal(err.refUpdate.newSha, tip);
          throw err;
        });
      }],
      'a new branch whose base moved': [moved, async () => begin((await fixture()).repo, { targetBranch: 'n', baseBranch: 'main', expectedHeadSha: nobody }).addFileFromString('x', 'x').send()],
      'an expectation of an empty repository': [update('precondition_failed'), async () => begin(await fresh(), { expectedHeadSha: nobody }).addFileFromString('x', 'x').send()],
      'nothing to do': [update('precondition_failed', /no changes/), async () => begin((await fixture()).repo).addFileFromString('src/deep/util.js', 'export const a = 1;\n').send()],
      'an unknown base': [update('not_found'), async () => begin((await fixture()).repo, { targetBranch: 'n', baseBranch: 'absent' }).addFileFromString('x', 'x').send()],
      'an unknown branch without a base': [update('not_found'), async () => begin((await fixture()).repo, { targetBranch: 'n' }).addFileFromString('x', 'x').send()],
      'a bad branch name': [update('invalid'), async () => begin((await fixture()).repo, { targetBranch: 'a..b' }).addFileFromString('x', 'x').send()],
      'a bad guard': [update('invalid'), async () => begin((await fixture()).repo, { expectedHeadSha: 'abc' }).addFileFromString('x', 'x').send()],
      'a policy': [update('forbidden', /denied by policy/), async () => begin((await fixture()).repo, { refPolicies: closed }).addFileFromString('x', 'x').send()],
      'a policy that wants signatures': [update('forbidden'), async () => begin((await fixture()).repo, { refPolicies: [{ pattern: 'main', ops: [OP_VERIFY_SIG] }] }).addFileFromString('x', 'x').send()],
      'an unknown key, with much to send': [update('unauthorized'), async () => begin(stranger.repo({ id: (await fixture()).repo.id })).addFile('large', new Uint8Array(20 << 20)).send()],
      'more than all that there may be': [over('unknown', 'payload_too_large', /65536 bytes/), () => begin(narrow.repo({ id: 'narrow' })).addFile('large', noise(100)).send()],
      'more than there is room for': [over('failed', 'failed', /65536 bytes/), () => begin(narrow.repo({ id: 'narrow' })).addFile('large', noise(40)).send()],
      'twice': [plain(/reused/), async () => {
        const builder = begin(await fresh()).addFileFromString('a', 'a');
        await builder.send();
        await builder.send();
      }],
    },
  },
  'Repo.createCommitFromDiff': {
    kind: 'update',
    call: (repo) => apply(repo),
    proxied: update('failed', /502 Bad Gateway/),
    works: {
      async 'a patch'() {
        const { repo, tip } = await history();
        const done = await apply(repo, { expectedHeadSha: tip, committer: { name: 'Bot', email: 'bot@example.com' } });
        assert.deepEqual(done.refUpdate, { branch: 'main', oldSha: tip, newSha: done.commitSha });
        assert.equal(done.blobCount, 2);
        assert.match(await text(repo, 'README.md'), /patched line/);
        assert.equal(await text(repo, 'added.txt'), 'hello\n');
      },
      async 'what getCommitDiff gives'() {
        const { repo, first, tip } = await history();
        const diff = await repo.getCommitDiff({ sha: tip, gitApplyCompatible: true });
        await repo.createBranch({ baseRef: first, targetBranch: 'old' });
        const done = await apply(repo, { targetBranch: 'old', diff: new Blob(diff.files.map((f) => f.raw)) });
        assert.equal((await repo.listFilesWithMetadata({ ref: 'old' })).files.length, 3);
        assert.equal(await text(repo, 'README.md', { ref: done.commitSha }), await text(repo, 'README.md'));
      },
      async 'upon a base, ephemeral'() {
        const { repo } = await history();
        const done = await apply(repo, { targetBranch: 'patched', baseBranch: 'session', ephemeral: true, ephemeralBase: true });
        assert.equal(done.refUpdate.oldSha, zero);
        assert.equal(await text(repo, 'added.txt', { ref: 'patched', ephemeral: true }), 'hello\n');
      },
    },
    fails: {
      'it does not apply': [update('conflict'), async () => apply((await fixture()).repo, { diff: patch.replace('-changed', '-other') })],
      'not a patch': [update('invalid'), async () => apply((await fixture()).repo, { diff: 'hello\n' })],
      'nothing': [update('precondition_failed'), async () => apply((await fixture()).repo, { diff: '' })],
      'the branch moved': [moved, async () => apply((await fixture()).repo, { expectedHeadSha: nobody })],
      'an unknown base': [update('not_found'), async () => apply((await fixture()).repo, { targetBranch: 'n', baseBranch: 'absent' })],
      'a path in .git': [update('invalid'), async () => apply((await fixture()).repo, { diff: patch.replaceAll('added.txt', '.git/x') })],
      'a policy': [update('forbidden', /denied by policy/), async () => apply((await fixture()).repo, { refPolicies: closed })],
      'no message': [plain(/required/), async () => apply((await fixture()).repo, { commitMessage: '' })],
      'more than there is room for': [over('failed', 'failed', /65536 bytes/), () => apply(narrow.repo({ id: 'narrow' }), { diff: adding(noise(30).toString('hex')) })],
    },
  },
  'Repo.restoreCommit': {
    kind: 'update',
    call: (repo) => restore(repo, { targetCommitSha: nobody }),
    proxied: (err) => err instanceof SyntaxError, // it reads the answer as JSON, whatever that is
    works: {
      async 'a new commit with the old tree'() {
        const { repo, first, tip } = await history();
        const done = await restore(repo, { targetCommitSha: first, expectedHeadSha: tip });
        assert.deepEqual(done.refUpdate, { branch: 'main', oldSha: tip, newSha: done.commitSha });
        assert.match(done.treeSha, sha);
        assert.equal(done.targetBranch, 'main');
        const { commit: c } = await repo.getCommit({ sha: done.commitSha });
        assert.deepEqual([c.parentShas, c.message], [[tip], 'Reset main to "Change README.md,src/app.js,src/deep/util.js"']);
        assert.match(await text(repo, 'README.md'), /second line/);
      },
      async 'by a revision, with a message'() {
        const { repo } = await history();
        const done = await restore(repo, { targetCommitSha: 'HEAD~1', commitMessage: ' Back ', committer: { name: 'Bot', email: 'bot@example.com' } });
        const { commit: c } = await repo.getCommit({ sha: done.commitSha });
        assert.deepEqual([c.message, c.committerName], ['Back', 'Bot']);
      },
    },
    fails: {
      'its own tip': [update('precondition_failed'), async () => restore((await fixture()).repo, { targetCommitSha: (await fixture()).tip })],
      'not an ancestor': [update('precondition_failed'), async () => restore((await fixture()).repo, { targetCommitSha: (await fixture()).feature })],
      'unknown': [update('precondition_failed'), async () => restore((await fixture()).repo, { targetCommitSha: nobody })],
      'the branch moved': [moved, async () => restore((await fixture()).repo, { targetCommitSha: (await fixture()).first, expectedHeadSha: nobody })],
      'an unknown branch': [update('not_found'), async () => restore((await fixture()).repo, { targetBranch: 'absent', targetCommitSha: (await fixture()).first })],
      'a policy': [update('forbidden', /denied by policy/), async () => restore((await fixture()).repo, { targetCommitSha: (await fixture()).first, refPolicies: closed })],
      'another ref': [plain(/refs/), async () => restore((await fixture()).repo, { targetBranch: 'refs/tags/x', targetCommitSha: nobody })],
      'no author': [plain(/author/), async () => restore((await fixture()).repo, { targetCommitSha: nobody, author: { name: ' ', email: '' } })],
    },
  },
};
