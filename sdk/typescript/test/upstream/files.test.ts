// TanStack's own capture and restore of files, of its sources in upstream/, with Cairn
// as both stores.
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { SandboxProvider } from '@tanstack/ai-sandbox'
import { afterAll, expect, it } from 'vitest'
import { createBlobStore, createCheckpointStore, type BlobStore, type Checkpoint } from '@cairnstate/tanstack-ai'
import { freshOrg } from '../world.js'

type Handle = Awaited<ReturnType<SandboxProvider['create']>>

interface Sources {
  captureSandboxFiles: (handle: Handle, bundle: { blobs: BlobStore }) => Promise<Pick<Checkpoint, 'files'>>
  restoreSandboxFiles: (handle: Handle, bundle: { blobs: BlobStore }, checkpoint: Checkpoint) => Promise<void>
  localProcessSandbox: (config: { baseDir: string }) => SandboxProvider
}

const base = mkdtempSync(join(tmpdir(), 'files-'))
afterAll(() => rmSync(base, { recursive: true }))

it.runIf(process.env.CAIRN_TANSTACK_SUITES === 'sources')('a sandbox comes back', async () => {
  const sources = ['sandbox/snapshots.ts', 'local-process/index.ts'].map((name) => import(new URL(`../../upstream/${name}`, import.meta.url).pathname))
  const { captureSandboxFiles, restoreSandboxFiles, localProcessSandbox } = Object.assign({}, ...(await Promise.all(sources))) as Sources
  const org = await freshOrg()
  const [store, blobs] = [createCheckpointStore(org), createBlobStore({ ...org, threadId: 'a' })]
  const provider = localProcessSandbox({ baseDir: base })

  const first = await provider.create({})
  const names = Array.from({ length: 60 }, (_, i) => `/workspace/src/${i % 7}/${i}.txt`)
  for (const name of names) await first.fs.write(name, `content of ${name}\n`)
  await first.fs.mkdir('/workspace/empty')
  const writer = await store.acquireWriter('a')
  const { files } = await captureSandboxFiles(first, { blobs })
  const checkpoint: Checkpoint = { id: '1', threadId: 'a', parentCheckpointId: null, createdAt: 1, reason: 'automatic', files, conversation: [], artifacts: [] }
  await store.append({ checkpoint, expectedHeadId: null, writer })
  await first.destroy()

  const second = await provider.create({})
  await second.fs.write('/workspace/other.txt', 'goes away')
  const head = await store.getHead('a')
  await restoreSandboxFiles(second, { blobs }, (await store.get(head!))!)
  for (const name of names) expect(await second.fs.read(name)).toBe(`content of ${name}\n`)
  expect(await second.fs.list('/workspace/empty')).toEqual([])
  expect(await second.fs.exists('/workspace/other.txt')).toBe(false)
  await second.destroy()
})
