// Stands for the part of `@tanstack/ai-sandbox` that the version from npm does not
// have yet: checkpoints at any time, written after its documentation.
import type { SandboxHandle } from '@tanstack/ai-sandbox'
import { SandboxSnapshotError } from './errors.js'
import type { ModelMessage, SandboxBlobs, SandboxCheckpoint, SandboxCheckpointStore } from './store.js'

export * from './errors.js'
export type * from './store.js'

interface Where {
  handle: SandboxHandle
  checkpoints: SandboxCheckpointStore
  blobs: SandboxBlobs
  threadId: string
  /** The folder to keep. */
  workspaceRoot?: string
}

/** Saves the files of a sandbox as the newest checkpoint of a thread. */
export async function captureSandboxCheckpoint(
  input: Where & { label?: string; conversation?: ModelMessage[] },
): Promise<SandboxCheckpoint> {
  const { handle, checkpoints, blobs, threadId, label, conversation = [], workspaceRoot = '/workspace' } = input
  const writer = await checkpoints.acquireWriter(threadId)
  try {
    const files = []
    for (const entry of await walk(handle, workspaceRoot)) {
      if (entry.type === 'dir') {
        if (entry.empty) files.push({ path: entry.path, kind: 'dir' as const })
        continue
      }
      const bytes = new Uint8Array(await handle.fs.readBytes(`${workspaceRoot}/${entry.path}`))
      const blobKey = `sandbox-files/sha256/${await sha256(bytes)}`
      if (!(await blobs.head(blobKey))) await blobs.put(blobKey, bytes)
      files.push({ path: entry.path, kind: 'file' as const, blobKey, size: bytes.byteLength })
    }
    const head = await checkpoints.getHead(threadId)
    const checkpoint: SandboxCheckpoint = {
      id: crypto.randomUUID(),
      threadId,
      parentCheckpointId: head,
      createdAt: Date.now(),
      reason: label === undefined ? 'automatic' : 'named',
      ...(label === undefined ? {} : { label }),
      files,
      conversation,
      artifacts: [],
    }
    await checkpoints.append({ checkpoint, expectedHeadId: head, writer })
    return checkpoint
  } finally {
    await writer.release()
  }
}

/** Makes the files of a sandbox those of a checkpoint: the newest, or another one of the thread. */
export async function restoreSandboxCheckpoint(input: Where & { checkpointId?: string }): Promise<SandboxCheckpoint | null> {
  const { handle, checkpoints, blobs, threadId, workspaceRoot = '/workspace' } = input
  const id = input.checkpointId ?? (await checkpoints.getHead(threadId))
  if (id === null) return null
  const checkpoint = await checkpoints.get(id)
  if (checkpoint?.threadId !== threadId) {
    throw new SandboxSnapshotError('SANDBOX_SNAPSHOT_MISSING_CHECKPOINT', 'the thread has no such checkpoint')
  }
  const contents = new Map<string, Uint8Array>()
  for (const entry of checkpoint.files) {
    if (entry.kind === 'file') contents.set(entry.path, await content(blobs, entry.blobKey))
  }
  const wanted = new Map(checkpoint.files.map(({ path, kind }) => [path, kind]))
  for (const entry of (await walk(handle, workspaceRoot)).reverse()) {
    const leads = [...wanted.keys()].some((path) => path.startsWith(`${entry.path}/`))
    if (wanted.get(entry.path) !== entry.type && !(entry.type === 'dir' && leads)) await handle.fs.remove(`${workspaceRoot}/${entry.path}`)
  }
  for (const { path, kind } of checkpoint.files) {
    const directory = kind === 'dir' ? path : path.slice(0, Math.max(path.lastIndexOf('/'), 0))
    await handle.fs.mkdir(`${workspaceRoot}/${directory}`)
    if (kind === 'file') await handle.fs.write(`${workspaceRoot}/${path}`, contents.get(path)!)
  }
  return checkpoint
}

/** What is kept of a folder, each directory before what lies in it. */
async function walk(handle: SandboxHandle, root: string, below = ''): Promise<Array<{ path: string; type: 'file' | 'dir'; empty: boolean }>> {
  const found = []
  for (const { name, type } of await handle.fs.list(`${root}/${below}`)) {
    const path = below + name
    if (name === '.git' || name === 'node_modules' || name.startsWith('.env')) continue
    const within = type === 'dir' ? await walk(handle, root, `${path}/`) : []
    found.push({ path, type, empty: within.length === 0 }, ...within)
  }
  return found
}

async function content(blobs: SandboxBlobs, key: string): Promise<Uint8Array> {
  const blob = await blobs.get(key)
  if (blob === null) throw new SandboxSnapshotError('SANDBOX_SNAPSHOT_MISSING_BLOB', `there is no blob ${key}`)
  const bytes = new Uint8Array(await blob.arrayBuffer())
  if (!key.endsWith(await sha256(bytes))) throw new SandboxSnapshotError('SANDBOX_SNAPSHOT_INVALID_BLOB', `blob ${key} has other bytes`)
  return bytes
}

async function sha256(bytes: Uint8Array<ArrayBuffer>): Promise<string> {
  const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', bytes))
  return [...digest].map((byte) => byte.toString(16).padStart(2, '0')).join('')
}
