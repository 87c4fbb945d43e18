// What the client does by itself: handles, remote URLs, claims and webhooks.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { createHmac } from 'node:crypto';
import { mkdtempSync } from 'node:fs';
import { join } from 'node:path';
import { ApiError, CodeStorage, GitStorage, OP_NO_PUSH, RefUpdateError, createClient, encodeRefsClaim, parseSignatureHeader, validateWebhook, validateWebhookSignature } from '@pierre/storage';
import { author, closed, fixture, history, holder, key, plain, store, urls } from './world.mjs';

const git = (...args) => execFileSync('git', args, { stdio: ['ignore', 'pipe', 'pipe'] }).toString();
const heads = (url) => git('ls-remote', '--heads', url).split('\n').filter(Boolean).map((l) => l.split('\trefs/heads/')[1]);

// pushes clones a repository, adds a commit and gives it to try.
async function pushes(repo, url, refspec) {
  const dir = mkdtempSync(join(process.cwd(), 'work-'));
  git('clone', '-q', await repo.getRemoteURL({ ttl: 60 }), dir);
  git('-C', dir, '-c', 'user.name=w', '-c', 'user.email=w@example.com', 'commit', '-q', '--allow-empty', '-m', 'Push');
  return git('-C', dir, 'push', url, refspec);
}

const secret = 's3cret';
const body = '{"ref":"refs/heads/main","before":"0","after":"1"}';
const signed = 't=1790000000,sha256=4d38e01ea6039c2094e98395081b85c0efd6af8ae2740ebfab403ded420cb4b8';
const now = () => {
  const t = Math.floor(Date.now() / 1000);
  return `t=${t},sha256=${createHmac('sha256', secret).update(`${t}.${body}`).digest('hex')}`;
};

const construct = {
  works: {
    async 'with a slash after the URL, with another fetch'() {
      const { repo } = await fixture();
      let asked = 0;
      const other = new GitStorage({ key, ...urls, apiBaseUrl: `${urls.apiBaseUrl}/`, fetch: (...args) => { asked++; return fetch(...args); } });
      assert.equal((await other.findOne({ id: repo.id })).defaultBranch, 'main');
      const made = await history();
      await other.repo({ id: made.repo.id }).createCommit({ targetBranch: 'main', commitMessage: 'x', author }).addFileFromString('x', 'x').send();
      assert.equal(asked, 2);
    },
    async 'with a key, with a token'() {
      const { repo } = await fixture();
      assert.equal(new GitStorage({ key, ...urls }).getConfig().name, 'acme');
      // One token with many scopes serves every call of its repository.
      const one = await holder({ repo: repo.id, scopes: ['git:read', 'git:write', 'repo:write'] });
      const handle = one.repo({ id: repo.id });
      assert.ok((await handle.listFiles()).paths.length > 0);
      assert.match(await (await handle.getFileStream({ path: 'README.md' })).text(), /Hello/);
      assert.ok(heads(await handle.getRemoteURL()).includes('main'));
    },
  },
  fails: {
    'no name': [plain(/name/), () => new GitStorage({ key })],
    'no key': [plain(/key or a token/), () => new GitStorage({ name: 'acme' })],
    'not a key': [(err) => { assert.ok(err); return true; }, () => new GitStorage({ ...urls, key: 'x' }).listRepos()],
  },
};

export const client = {
  GitStorage: construct,
  CodeStorage: { works: { 'is the same'() { assert.equal(CodeStorage, GitStorage); } }, fails: construct.fails },
  createClient: { works: { 'makes one'() { assert.ok(createClient({ key, ...urls }) instanceof GitStorage); } }, fails: { 'no name': [plain(/name/), () => createClient({ key })] } },
  'GitStorage.getDefaultAPIBaseUrl': { works: { 'by name'() { assert.equal(GitStorage.getDefaultAPIBaseUrl('acme'), 'https://api.acme.code.storage'); } }, fails: {} },
  'GitStorage.getDefaultStorageBaseUrl': { works: { 'by name'() { assert.equal(GitStorage.getDefaultStorageBaseUrl('acme'), 'acme.code.storage'); } }, fails: {} },
  'GitStorage.getConfig': { works: { 'both URLs'() { assert.equal(store.getConfig().apiBaseUrl, urls.apiBaseUrl); } }, fails: {} },
  'GitStorage.repo': {
    works: { async 'without a request'() { assert.ok((await store.repo({ id: (await fixture()).repo.id }).listFiles()).paths.length); } },
    fails: { 'no id': [plain(/non-empty/), () => store.repo({ id: ' ' })] },
  },
  ApiError: { works: { 'carries the answer'() { assert.equal(new ApiError({ message: 'm', status: 404, statusText: 's', method: 'GET', url: 'u' }).status, 404); } }, fails: {} },
  RefUpdateError: {
    works: {
      'knows its reasons'() {
        for (const reason of ['precondition_failed', 'conflict', 'not_found', 'invalid', 'timeout', 'unauthorized', 'forbidden', 'unavailable', 'internal', 'failed']) {
          assert.equal(new RefUpdateError('m', { status: ` ${reason.toUpperCase()} ` }).reason, reason);
        }
        assert.equal(new RefUpdateError('m', { status: '409' }).reason, 'unknown');
      },
    },
    fails: {},
  },
  encodeRefsClaim: { works: { 'as pairs'() { assert.deepEqual(encodeRefsClaim([{ pattern: 'refs/heads/main', ops: [OP_NO_PUSH] }, { pattern: '*' }]), [['refs/heads/main', ['no-push']], ['*', []]]); } }, fails: {} },
  parseSignatureHeader: {
    works: { 'its parts'() { assert.deepEqual(parseSignatureHeader(signed), { timestamp: '1790000000', signature: signed.split('sha256=')[1] }); } },
    fails: { 'not a header': [plain(/null/), () => { throw new Error(String(parseSignatureHeader('x'))); }] },
  },
  validateWebhookSignature: {
    works: {
      async 'a known signature'() {
        assert.equal((await validateWebhookSignature(body, signed, secret, { maxAgeSeconds: 0 })).valid, true);
        assert.equal((await validateWebhookSignature(body, now(), secret)).valid, true);
      },
    },
    fails: {
      'too old': [plain(/old/), async () => { throw new Error((await validateWebhookSignature(body, signed.replace('t=17', 't=15'), secret)).error); }],
      'another body': [plain(/signature/i), async () => { throw new Error((await validateWebhookSignature(`${body} `, now(), secret)).error); }],
    },
  },
  validateWebhook: { // deliveries of the server: TestPublishedValidators
    works: {
      async 'an event it does not know'() {
        const result = await validateWebhook(body, { 'x-pierre-event': 'repo.sync.started', 'x-pierre-signature': now() }, secret);
        assert.deepEqual([result.valid, result.eventType], [true, 'repo.sync.started']);
      },
    },
    fails: { 'no signature': [plain(/signature/i), async () => { throw new Error((await validateWebhook(body, { 'x-pierre-event': 'push' }, secret)).error); }] },
  },
  'Repo.getRemoteURL': {
    works: {
      async 'to read and write'() {
        const { repo } = await history();
        assert.deepEqual(heads(await repo.getRemoteURL({ ttl: 60 })), ['feature', 'main']);
        await pushes(repo, await repo.getRemoteURL({ ttl: 60 }), 'HEAD:refs/heads/pushed');
        assert.ok(heads(await repo.getRemoteURL()).includes('pushed'), 'a token of a year');
      },
    },
    fails: {
      'to read only': [plain(/403/), async () => { const { repo } = await history(); return pushes(repo, await repo.getRemoteURL({ permissions: ['git:read'], ttl: 60 }), 'HEAD:refs/heads/pushed'); }],
      'a policy': [plain(/denied by policy/), async () => { const { repo } = await history(); return pushes(repo, await repo.getRemoteURL({ ttl: 60, refPolicies: [{ pattern: 'main', ops: [OP_NO_PUSH] }] }), 'HEAD:main'); }],
      'the older ops': [plain(/denied by policy/), async () => { const { repo } = await history(); return pushes(repo, await repo.getRemoteURL({ ttl: 60, ops: [OP_NO_PUSH] }), 'HEAD:main'); }],
      'no token': [plain(/could not read Username|Authentication failed/), async () => git('ls-remote', `https://${urls.storageBaseUrl}/${(await fixture()).repo.id}.git`)],
      'no repository': [plain(/not found/), async () => git('ls-remote', await store.repo({ id: 'team/absent' }).getRemoteURL({ ttl: 60 }))],
    },
  },
  'Repo.getEphemeralRemoteURL': {
    works: {
      async 'to its own branches'() {
        const { repo } = await history();
        assert.deepEqual(heads(await repo.getEphemeralRemoteURL({ ttl: 60 })), ['session']);
        await pushes(repo, await repo.getEphemeralRemoteURL({ ttl: 60 }), 'HEAD:refs/heads/main');
        assert.deepEqual(heads(await repo.getEphemeralRemoteURL({ ttl: 60 })), ['main', 'session']);
      },
    },
    fails: {
      'a policy': [plain(/denied by policy/), async () => {
        const { repo } = await history();
        const refPolicies = [{ pattern: 'refs/namespaces/ephemeral/refs/heads/mine', ops: [] }, ...closed];
        await pushes(repo, await repo.getEphemeralRemoteURL({ ttl: 60, refPolicies }), 'HEAD:refs/heads/mine');
        return pushes(repo, await repo.getEphemeralRemoteURL({ ttl: 60, refPolicies }), 'HEAD:refs/heads/main');
      }],
    },
  },
  'Repo.getImportRemoteURL': {
    works: { async 'to push'() { const { repo } = await history(); await pushes(repo, await repo.getImportRemoteURL({ ttl: 60 }), 'HEAD:refs/heads/imported'); assert.ok(heads(await repo.getRemoteURL({ ttl: 60 })).includes('imported')); } },
    fails: { 'to read': [plain(/403/), async () => git('ls-remote', await (await fixture()).repo.getImportRemoteURL({ ttl: 60 }))] },
  },
};
