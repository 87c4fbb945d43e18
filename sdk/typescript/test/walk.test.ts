// The walk of TanStack's page on checkpoints, over a sandbox that is a directory:
// write, capture, lose the sandbox, restore. And what is refused on the way.
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { localProcessSandbox } from '@tanstack/ai-sandbox-local-process'
import { afterAll, expect, it } from 'vitest'
import { createBlobStore, createCheckpointStore } from '@cairnstate/tanstack-ai'
import { captureSandboxCheckpoint, restoreSandboxCheckpoint, type SandboxBlobs } from './tanstack/index.js'
import { freshOrg } from './world.js'

const base = mkdtempSync(join(tmpdir(), 'walk-'))
afterAll(() => rmSync(base, { recursive: true }))

/** A bucket of the application. */
function bucket(): SandboxBlobs & { objects: Map<string, Uint8Array<ArrayBuffer>> } {
  const objects = new Map<string, Uint8Array<ArrayBuffer>>()
  return {
    objects,
    get: async (key) => (objects.has(key) ? new Response(objects.get(key)!) : null),
    head: async (key) => objects.get(key) ?? null,
    put: async (key, body) => objects.set(key, body.slice()),
  }
}

it.each(['Cairn', 'the application'])('a thread goes on in the next sandbox, with bytes kept by %s', async (keeper) => {
  const org = await freshOrg()
  const threadId = 'thread/1'
  const own = keeper !== 'Cairn'
  const checkpoints = createCheckpointStore({ ...org, externalBlobs: own })
  const blobs = own ? bucket() : createBlobStore(org)
  const provider = localProcessSandbox({ baseDir: base })

  const first = await provider.create({})
  const where = { checkpoints, blobs, threadId }
  expect(await restoreSandboxCheckpoint({ ...where, handle: first })).toBeNull()
  await first.fs.write('/workspace/src/main.ts', 'export const answer = 42\n')
  await first.fs.write('/workspace/image.bin', new Uint8Array(Array.from({ length: 70_000 }, (_, i) => i % 251)))
  await first.fs.mkdir('/workspace/empty')
  const saved = await captureSandboxCheckpoint({ ...where, handle: first, label: 'first' })
  await first.fs.write('/workspace/src/main.ts', 'export const answer = 43\n')
  await first.fs.write('/workspace/later.txt', 'later')
  const newest = await captureSandboxCheckpoint({ ...where, handle: first })
  expect(newest.parentCheckpointId).toBe(saved.id)
  expect((await checkpoints.list(threadId)).map(({ id }) => id).sort()).toEqual([saved.id, newest.id].sort())

  await first.destroy()
  const second = await provider.create({})
  expect((await restoreSandboxCheckpoint({ ...where, handle: second }))?.id).toBe(newest.id)
  expect(await second.fs.read('/workspace/src/main.ts')).toBe('export const answer = 43\n')
  expect((await second.fs.readBytes('/workspace/image.bin'))[500]).toBe(500 % 251)
  expect(await second.fs.list('/workspace/empty')).toEqual([])

  expect((await restoreSandboxCheckpoint({ ...where, handle: second, checkpointId: saved.id }))?.label).toBe('first')
  expect(await second.fs.read('/workspace/src/main.ts')).toBe('export const answer = 42\n')
  expect(await second.fs.exists('/workspace/later.txt')).toBe(false)

  const writer = await checkpoints.acquireWriter(threadId)
  await expect(captureSandboxCheckpoint({ ...where, handle: second })).rejects.toMatchObject({ name: 'SandboxCheckpointWriterConflictError' })
  await writer.release()
  const other = { ...where, threadId: 'another', handle: second, checkpointId: saved.id }
  await expect(restoreSandboxCheckpoint(other)).rejects.toMatchObject({ code: 'SANDBOX_SNAPSHOT_MISSING_CHECKPOINT' })
  await second.destroy()

  const references = await checkpoints.listBlobReferences()
  expect(references.map(({ references }) => references).sort()).toEqual([1, 1, 1, 2])
  if ('objects' in blobs) expect(references.map(({ key }) => key)).toEqual([...blobs.objects.keys()].sort())
})
