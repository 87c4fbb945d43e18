// What is read of a repository.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { gunzipSync } from 'node:zlib';
import { api, author, commit, fixture, fresh, history, nobody, pages, plain, sha } from './world.mjs';

const entries = async (archive) => {
  const bytes = Buffer.from(await archive.arrayBuffer());
  gunzipSync(bytes); // complete, with its checksum
  return execFileSync('tar', ['-tzf', '-'], { input: bytes }).toString().split('\n').filter((p) => p && !p.endsWith('/')).sort();
};
const files = ['README.md', 'src/app.js', 'src/deep/util.js'];

export const reading = {
  'Repo.getFileStream': {
    call: (repo) => repo.getFileStream({ path: 'README.md' }),
    works: {
      async 'whole'() {
        const { repo, tip, first } = await fixture();
        const file = await repo.getFileStream({ path: '/README.md' });
        assert.equal(file.status, 200);
        assert.equal(await file.text(), '# Hello\nchanged line\nthird line\n');
        assert.equal(file.headers.get('etag'), `"${file.headers.get('x-blob-sha')}"`);
        assert.equal(file.headers.get('x-last-commit-sha'), tip);
        assert.match(await (await repo.getFileStream({ path: 'README.md', ref: first })).text(), /second line/);
      },
      async 'ephemeral'() {
        const { repo } = await fixture();
        assert.equal(await (await repo.getFileStream({ path: 'state.json', ref: 'session', ephemeral: true })).text(), '{}\n');
        assert.equal(await (await repo.getFileStream({ path: 'state.json', ref: 'session', ephemeralBase: true })).text(), '{}\n');
      },
      async 'ranges and conditions'() {
        const { repo } = await fixture();
        const get = (headers) => repo.getFileStream({ path: 'README.md', headers });
        const part = await get({ range: 'bytes=2-6' });
        assert.equal(part.status, 206);
        assert.equal(await part.text(), 'Hello');
        assert.equal(part.headers.get('content-range'), 'bytes 2-6/32');
        const beyond = await get({ range: 'bytes=32-' });
        assert.equal(beyond.status, 416);
        assert.equal(beyond.headers.get('content-range'), 'bytes */32');
        const etag = part.headers.get('etag');
        assert.equal((await get({ ifNoneMatch: etag })).status, 304);
        assert.equal((await get({ ifMatch: '"x"' })).status, 412);
        assert.equal((await get({ ifModifiedSince: part.headers.get('last-modified') })).status, 304);
        assert.equal((await get({ ifUnmodifiedSince: 'Thu, 01 Jan 1970 00:00:01 GMT' })).status, 412);
        assert.equal((await get({ range: 'bytes=2-6', ifRange: '"x"' })).status, 200);
        assert.equal((await get({ range: 'bytes=2-6', ifRange: etag })).status, 206);
      },
    },
    fails: {
      'an absent path': [api(404), async () => (await fixture()).repo.getFileStream({ path: 'absent' })],
      'a directory': [api(404), async () => (await fixture()).repo.getFileStream({ path: 'src' })],
      'an unknown ref': [api(404), async () => (await fixture()).repo.getFileStream({ path: 'README.md', ref: 'absent' })],
      'an ephemeral ref without the flag': [api(404), async () => (await fixture()).repo.getFileStream({ path: 'state.json', ref: 'session' })],
      'a path that climbs': [api(400), async () => (await fixture()).repo.getFileStream({ path: '../README.md' })],
      'no path': [api(400), async () => (await fixture()).repo.getFileStream({ path: '' })],
    },
  },
  'Repo.headFile': {
    call: (repo) => repo.headFile({ path: 'README.md' }),
    works: {
      async 'identity without content'() {
        const { repo, tip, first } = await fixture();
        const head = await repo.headFile({ path: 'README.md' });
        assert.equal(head.status, 200);
        assert.equal(head.size, 32);
        assert.match(head.blobSha, sha);
        assert.equal(head.etag, `"${head.blobSha}"`);
        assert.equal(head.lastCommitSha, tip);
        assert.equal(head.acceptRanges, 'bytes');
        assert.equal(head.contentType, 'application/octet-stream');
        assert.ok(head.lastModified instanceof Date);
        assert.equal((await repo.headFile({ path: 'src/app.js' })).lastCommitSha, first);
        assert.equal((await repo.headFile({ path: 'README.md', headers: { ifNoneMatch: head.etag } })).status, 304);
        assert.equal((await repo.headFile({ path: 'README.md', headers: { ifMatch: '"x"' } })).status, 412);
      },
    },
    fails: {
      'an absent path': [api(404), async () => (await fixture()).repo.headFile({ path: 'absent' })],
      'a path that climbs': [api(400), async () => (await fixture()).repo.headFile({ path: 'a/../b' })],
    },
  },
  'Repo.getArchiveStream': {
    call: (repo) => repo.getArchiveStream(),
    works: {
      async 'everything'() {
        const { repo } = await fixture();
        const archive = await repo.getArchiveStream();
        assert.equal(archive.headers.get('content-type'), 'application/gzip');
        assert.match(archive.headers.get('content-disposition'), /^attachment; filename=".*\.tar\.gz"$/);
        assert.deepEqual(await entries(archive), files);
      },
      async 'filters and a prefix'() {
        const { repo } = await fixture();
        assert.deepEqual(await entries(await repo.getArchiveStream({ includeGlobs: ['src/**'] })), files.slice(1));
        assert.deepEqual(await entries(await repo.getArchiveStream({ excludeGlobs: ['src/**'], archivePrefix: 'project' })), ['project/README.md']);
        assert.deepEqual(await entries(await repo.getArchiveStream({ maxBlobSize: 30 })), ['src/deep/util.js']);
        assert.deepEqual(await entries(await repo.getArchiveStream({ includeGlobs: ['none'] })), []);
      },
      async 'a commit that only an ephemeral branch holds'() {
        const { repo, session } = await fixture();
        assert.ok((await entries(await repo.getArchiveStream({ ref: session }))).includes('state.json'));
      },
    },
    fails: {
      'an unknown commit': [api(404), async () => (await fixture()).repo.getArchiveStream({ ref: nobody })],
      'a prefix that climbs': [api(400), async () => (await fixture()).repo.getArchiveStream({ archivePrefix: '../up' })],
      'a bad glob': [api(400), async () => (await fixture()).repo.getArchiveStream({ includeGlobs: ['[a'] })],
      'an empty repository': [api(404), async () => (await fresh()).getArchiveStream()],
    },
  },
  'Repo.listFiles': {
    call: (repo) => repo.listFiles(),
    works: {
      async 'everything'() {
        const { repo } = await fixture();
        const listed = await repo.listFiles();
        assert.deepEqual(listed.paths, files);
        assert.equal(listed.ref, 'main');
        assert.equal(listed.hasMore, false);
        assert.deepEqual(listed.entries.find((e) => e.path === 'src/deep'), { path: 'src/deep', type: 'tree', mode: '040000' });
      },
      async 'modes, a folder, pages'() {
        const repo = await fresh();
        await repo.createCommit({ targetBranch: 'main', commitMessage: 'Modes', author })
          .addFileFromString('bin/run', '#!/bin/sh\n', { mode: '100755' })
          .addFileFromString('link', 'bin/run', { mode: '120000' })
          .addFileFromString('sub', nobody, { mode: '160000' })
          .send();
        const listed = await repo.listFiles();
        assert.deepEqual(Object.fromEntries(listed.entries.map((e) => [e.path, `${e.type} ${e.mode}`])),
          { bin: 'tree 040000', 'bin/run': 'blob 100755', link: 'symlink 120000', sub: 'submodule 160000' });
        assert.deepEqual((await repo.listFiles({ recursive: false })).paths, ['link']);
        assert.deepEqual((await repo.listFiles({ path: 'bin' })).paths, ['bin/run']);
        const one = await repo.listFiles({ limit: 1 });
        assert.ok(one.hasMore);
        const rest = await repo.listFiles({ cursor: one.nextCursor });
        assert.deepEqual([...one.entries, ...rest.entries].map((e) => e.path).sort(), ['bin', 'bin/run', 'link', 'sub']);
      },
      async 'ephemeral'() {
        const listed = await (await fixture()).repo.listFiles({ ref: 'session', ephemeral: true });
        assert.ok(listed.paths.includes('state.json'));
        assert.equal(listed.ref, 'refs/namespaces/ephemeral/refs/heads/session');
      },
    },
    fails: {
      'an unknown ref': [api(404), async () => (await fixture()).repo.listFiles({ ref: 'absent' })],
      'an ephemeral ref without the flag': [api(404), async () => (await fixture()).repo.listFiles({ ref: 'session' })],
      'an unknown folder': [api(404), async () => (await fixture()).repo.listFiles({ path: 'absent' })],
      'an empty repository': [api(404), async () => (await fresh()).listFiles()],
      'a bad limit': [api(400), async () => (await fixture()).repo.listFiles({ limit: 0 })],
    },
  },
  'Repo.listFilesWithMetadata': {
    call: (repo) => repo.listFilesWithMetadata(),
    works: {
      async 'the last commits of a page'() {
        const { repo, first, tip } = await fixture();
        const listed = await repo.listFilesWithMetadata();
        assert.deepEqual(listed.files.map((f) => [f.path, f.lastCommitSha, f.size]), [['README.md', tip, 32], ['src/app.js', first, 31], ['src/deep/util.js', first, 20]]);
        assert.deepEqual(Object.keys(listed.commits).sort(), [first, tip].sort());
        assert.equal(listed.commits[tip].author, author.name);
        assert.equal(listed.commits[tip].message, 'Change README.md');
        assert.ok(!Number.isNaN(listed.commits[tip].date.getTime()));
        assert.equal(listed.ref, 'main');
        const paged = await pages((page) => repo.listFilesWithMetadata(page), 'files');
        assert.deepEqual(paged, listed.files);
        assert.equal((await repo.listFilesWithMetadata({ path: 'src' })).files.length, 2);
        assert.ok((await repo.listFilesWithMetadata({ ref: 'session', ephemeral: true })).files.some((f) => f.path === 'state.json'));
      },
    },
    fails: {
      'an unknown ref': [api(404), async () => (await fixture()).repo.listFilesWithMetadata({ ref: 'absent' })],
      'an ephemeral listing without a ref': [api(400), async () => (await fixture()).repo.listFilesWithMetadata({ ephemeral: true })],
      'an empty repository': [api(404), async () => (await fresh()).listFilesWithMetadata()],
    },
  },
  'Repo.listCommits': {
    call: (repo) => repo.listCommits(),
    works: {
      async 'newest first'() {
        const { repo, first, tip, session } = await fixture();
        const { commits } = await repo.listCommits();
        assert.deepEqual(commits.map((c) => c.sha), [tip, first]);
        assert.deepEqual(commits.map((c) => c.parentShas), [[first], []]);
        assert.equal(commits[0].message, 'Change README.md');
        assert.deepEqual([commits[0].authorName, commits[0].authorEmail, commits[0].committerName, commits[0].committerEmail], [author.name, author.email, 'Bot', 'bot@example.com']);
        assert.ok(Math.abs(commits[0].date.getTime() - Date.now()) < 3_600_000);
        assert.deepEqual((await pages((page) => repo.listCommits({ branch: 'main', ...page }), 'commits')).map((c) => c.sha), [tip, first]);
        assert.deepEqual((await repo.listCommits({ path: 'src' })).commits.map((c) => c.sha), [first]);
        assert.equal((await repo.listCommits({ branch: 'session', ephemeral: true })).commits[0].sha, session);
      },
      async 'nothing yet'() {
        assert.deepEqual((await (await fresh()).listCommits()).commits, []);
      },
    },
    fails: {
      'an unknown branch': [api(404), async () => (await fixture()).repo.listCommits({ branch: 'absent' })],
      'an ephemeral branch without the flag': [api(404), async () => (await fixture()).repo.listCommits({ branch: 'session' })],
      'a bad cursor': [api(400), async () => (await fixture()).repo.listCommits({ cursor: 'x' })],
    },
  },
  'Repo.getCommit': {
    call: (repo) => repo.getCommit({ sha: 'main' }),
    works: {
      async 'by its id, by a revision'() {
        const { repo, first, tip } = await fixture();
        const { commit: c } = await repo.getCommit({ sha: tip });
        assert.deepEqual([c.sha, c.parentShas, c.message], [tip, [first], 'Change README.md']);
        assert.ok(!('signature' in c) && !('payload' in c));
        assert.equal((await repo.getCommit({ sha: 'main~1' })).commit.sha, first);
      },
    },
    fails: {
      'unknown': [api(404), async () => (await fixture()).repo.getCommit({ sha: nobody })],
      'no id': [plain(/required/), async () => (await fixture()).repo.getCommit({ sha: ' ' })],
    },
  },
  'Repo.getBlame': {
    call: (repo) => repo.getBlame({ path: 'README.md' }),
    works: {
      async 'each line'() {
        const { repo, first, tip } = await fixture();
        const blame = await repo.getBlame({ path: 'README.md' });
        assert.deepEqual([blame.ref, blame.path, blame.commitSha], ['main', 'README.md', tip]);
        assert.deepEqual(blame.lines.map((l) => [l.lineNumber, l.commitSha, l.originalLineNumber, l.originalPath, l.summary]), [
          [1, first, 1, 'README.md', 'Change README.md,src/app.js,src/deep/util.js'],
          [2, tip, 2, 'README.md', 'Change README.md'],
          [3, first, 3, 'README.md', 'Change README.md,src/app.js,src/deep/util.js'],
        ]);
        const [, changed] = blame.lines;
        assert.equal(changed.previousCommitSha, first);
        assert.deepEqual([changed.authorName, changed.authorEmail, changed.committerName, changed.committerEmail], [author.name, author.email, 'Bot', 'bot@example.com']);
        assert.ok(!Number.isNaN(changed.authorTime.getTime()) && !Number.isNaN(changed.committerTime.getTime()));
      },
      async 'ranges, moves, another ref'() {
        const { repo, first } = await fixture();
        const blame = await repo.getBlame({ path: 'README.md', ref: first, ranges: ['1,1', '/third/,+1'], detectMoves: true });
        assert.deepEqual(blame.lines.map((l) => l.lineNumber), [1, 3]);
        assert.equal((await repo.getBlame({ path: 'state.json', ref: 'session', ephemeral: true })).lines.length, 1);
      },
    },
    fails: {
      'an absent path': [api(404), async () => (await fixture()).repo.getBlame({ path: 'absent' })],
      'an unknown ref': [api(404), async () => (await fixture()).repo.getBlame({ path: 'README.md', ref: 'absent' })],
      'a bad range': [api(400), async () => (await fixture()).repo.getBlame({ path: 'README.md', ranges: ['x'] })],
      'too many ranges': [api(400), async () => (await fixture()).repo.getBlame({ path: 'README.md', ranges: Array(17).fill('1,1') })],
      'a binary file': [api(400), async () => {
        const repo = await fresh();
        await commit(repo, 'main', { bin: 'a\0b' });
        return repo.getBlame({ path: 'bin' });
      }],
      'no path': [plain(/required/), async () => (await fixture()).repo.getBlame({ path: ' ' })],
    },
  },
  'Repo.grep': {
    call: (repo) => repo.grep({ query: { pattern: 'x' } }),
    works: {
      async 'lines with their numbers'() {
        const { repo, tip } = await fixture();
        const found = await repo.grep({ query: { pattern: 'return [0-9]' }, context: { before: 1, after: 1 } });
        assert.deepEqual(found.query, { pattern: 'return [0-9]', caseSensitive: true });
        assert.equal(found.repo.commit, tip);
        assert.deepEqual(found.matches, [{ path: 'src/app.js', lines: [
          { lineNumber: 1, text: 'function app() {', type: 'context' },
          { lineNumber: 2, text: '  return 1;', type: 'match' },
          { lineNumber: 3, text: '}', type: 'context' },
        ] }]);
        assert.equal(found.hasMore, false);
      },
      async 'case, filters, limits'() {
        const { repo } = await fixture();
        assert.deepEqual((await repo.grep({ query: { pattern: 'hello' } })).matches, []);
        const any = await repo.grep({ query: { pattern: 'hello', caseSensitive: false }, fileFilters: { includeGlobs: ['README.md'] }, limits: { maxMatchesPerFile: 1 } });
        assert.deepEqual(any.matches[0].lines, [{ lineNumber: 1, text: '# Hello', type: 'match' }]);
        const paths = async (options) => (await repo.grep({ query: { pattern: '.' }, ...options })).matches.map((m) => m.path);
        assert.deepEqual(await paths({ paths: ['src'] }), ['src/app.js', 'src/deep/util.js']);
        assert.deepEqual(await paths({ fileFilters: { extensionFilters: ['.js'], excludeGlobs: ['src/deep/**'] } }), ['src/app.js']);
        assert.deepEqual(await paths({ fileFilters: {}, context: {}, limits: {}, pagination: {} }), files);
        assert.ok((await paths({ ref: 'session', ephemeral: true })).includes('state.json'));
        assert.deepEqual((await repo.grep({ query: { pattern: 'second' }, rev: 'main~1' })).matches.length, 1);
      },
      async 'pages'() {
        const { repo } = await fixture();
        const seen = [];
        let cursor;
        do {
          const page = await repo.grep({ query: { pattern: '.' }, pagination: { limit: 2, ...(cursor ? { cursor } : {}) } });
          for (const m of page.matches) seen.push(...m.lines.map((l) => `${m.path}:${l.lineNumber}`));
          assert.equal(Boolean(page.nextCursor), page.hasMore);
          cursor = page.nextCursor;
        } while (cursor);
        assert.deepEqual(seen, ['README.md:1', 'README.md:2', 'README.md:3', 'src/app.js:1', 'src/app.js:2', 'src/app.js:3', 'src/deep/util.js:1']);
      },
    },
    fails: {
      'a bad expression': [api(400), async () => (await fixture()).repo.grep({ query: { pattern: '(' } })],
      'an unknown ref': [api(404), async () => (await fixture()).repo.grep({ query: { pattern: 'x' }, ref: 'absent' })],
      'a bad cursor': [api(400), async () => (await fixture()).repo.grep({ query: { pattern: 'x' }, pagination: { cursor: 'x' } })],
      'an empty repository': [api(404), async () => (await fresh()).grep({ query: { pattern: 'x' } })],
      'no pattern': [plain(/required/), async () => (await fixture()).repo.grep({ query: { pattern: '' } })],
    },
  },
  'Repo.getCommitDiff': {
    call: (repo) => repo.getCommitDiff({ sha: 'main' }),
    works: {
      async 'against the parent'() {
        const { repo, first, tip } = await fixture();
        const diff = await repo.getCommitDiff({ sha: tip });
        assert.equal(diff.sha, tip);
        assert.deepEqual(diff.stats, { files: 1, additions: 1, deletions: 1, changes: 2 });
        const [file] = diff.files;
        assert.deepEqual([file.path, file.state, file.isEof, file.additions, file.deletions], ['README.md', 'modified', true, 1, 1]);
        assert.match(file.raw, /-second line\n\+changed line\n/);
        assert.equal(file.bytes, Buffer.byteLength(file.raw));
        assert.deepEqual(diff.filteredFiles, []);
        assert.equal((await repo.getCommitDiff({ sha: first })).files.length, 3);
      },
      async 'against a base, of some paths'() {
        const { repo, first, feature } = await fixture();
        const diff = await repo.getCommitDiff({ sha: feature, baseSha: first, paths: ['feature.txt'] });
        assert.deepEqual(diff.files.map((f) => [f.path, f.state]), [['feature.txt', 'added']]);
      },
      async 'a patch that applies, and what is filtered'() {
        const repo = await fresh();
        await commit(repo, 'main', { a: 'one\n' });
        const { commitSha } = await commit(repo, 'main', { a: 'one \n', b: 'x\0y' });
        const bare = await repo.getCommitDiff({ sha: commitSha });
        assert.deepEqual(bare.filteredFiles.map((f) => f.path), ['b']);
        const whole = await repo.getCommitDiff({ sha: commitSha, gitApplyCompatible: true, paths: ['a', 'b'] });
        assert.match(whole.files.map((f) => f.raw).join(''), /\+one \n[^]*GIT binary patch/);
      },
    },
    fails: {
      'unknown': [api(404), async () => (await fixture()).repo.getCommitDiff({ sha: nobody })],
      'an unknown base': [api(404), async () => (await fixture()).repo.getCommitDiff({ sha: 'main', baseSha: nobody })],
      'no id': [api(400), async () => (await fixture()).repo.getCommitDiff({ sha: '' })],
    },
  },
  'Repo.getBranchDiff': {
    call: (repo) => repo.getBranchDiff({ branch: 'feature' }),
    works: {
      async 'since the merge base'() {
        const { repo, tip } = await history();
        await commit(repo, 'main', { 'later.txt': 'later\n' });
        const diff = await repo.getBranchDiff({ branch: 'feature' });
        assert.deepEqual([diff.branch, diff.base, diff.mergeBaseSha], ['feature', 'main', tip]);
        assert.deepEqual(diff.files.map((f) => [f.path, f.state]), [['feature.txt', 'added']]);
        assert.deepEqual(diff.stats, { files: 1, additions: 1, deletions: 0, changes: 1 });
        assert.deepEqual((await repo.getBranchDiff({ branch: 'main', base: 'feature', paths: ['later.txt'] })).files.map((f) => f.path), ['later.txt']);
        assert.deepEqual((await repo.getBranchDiff({ branch: 'session', ephemeral: true })).files.map((f) => f.path), ['state.json']);
        assert.deepEqual((await repo.getBranchDiff({ branch: 'feature', base: 'session', ephemeralBase: true })).files.map((f) => f.path), ['feature.txt']);
      },
    },
    fails: {
      'an unknown branch': [api(404), async () => (await fixture()).repo.getBranchDiff({ branch: 'absent' })],
      'an unknown base': [api(404), async () => (await fixture()).repo.getBranchDiff({ branch: 'feature', base: 'absent' })],
      'an ephemeral branch without the flag': [api(404), async () => (await fixture()).repo.getBranchDiff({ branch: 'session' })],
      'no branch': [api(400), async () => (await fixture()).repo.getBranchDiff({ branch: '' })],
    },
  },
};
