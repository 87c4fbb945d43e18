// Checks deliveries, given as JSON on standard input, with the published
// client's own validator.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { parseSignatureHeader, validateWebhook } from '@pierre/storage';

const { secret, deliveries } = JSON.parse(readFileSync(0, 'utf8'));
for (const { headers, body } of deliveries) {
  const result = await validateWebhook(body, headers, secret);
  assert.ok(result.valid, result.error);
  assert.equal(result.eventType, headers['x-pierre-event']);
  const raw = JSON.parse(body);
  if (result.eventType === 'push') {
    assert.equal(result.payload.type, 'push');
    assert.equal(result.payload.ref, raw.ref);
    assert.equal(result.payload.before, raw.before);
    assert.equal(result.payload.after, raw.after);
    assert.equal(result.payload.customerId, 'acme');
    assert.equal(result.payload.repository.id, raw.repository.id);
    assert.equal(result.payload.repository.url, 'r');
    assert.ok(result.payload.pushedAt instanceof Date && !Number.isNaN(result.payload.pushedAt.getTime()));
  } else {
    assert.deepEqual(result.payload.raw, raw);
  }
  assert.match(parseSignatureHeader(headers['x-pierre-signature']).signature, /^[0-9a-f]{64}$/);
  assert.ok(!(await validateWebhook(`${body} `, headers, secret)).valid);
  assert.ok(!(await validateWebhook(body, headers, `${secret}x`)).valid);
}
console.log(deliveries.length);
