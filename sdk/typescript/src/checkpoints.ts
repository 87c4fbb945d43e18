import type { Checkpoint, Writer, WriterLease } from './checkpoint.js'
import { Connection, json, nothing, type CallOptions, type ConnectionOptions } from './connection.js'
import { CairnError, tanstack } from './errors.js'

/** The checkpoint store of TanStack AI (`SandboxCheckpointStore`). */
export interface CheckpointStore<C = Checkpoint> {
  /** The checkpoint with an id, or null. */
  get: (id: string, options?: CallOptions) => Promise<C | null>
  /** The checkpoints of a thread by `createdAt`, those of one time by the UTF-8 bytes of their ids. */
  list: (threadId: string, options?: CallOptions) => Promise<C[]>
  /** The id of the newest checkpoint of a thread, or null. */
  getHead: (threadId: string, options?: CallOptions) => Promise<string | null>
  /** Appends a checkpoint; it becomes the head. All of it happens, once, or nothing. */
  append: (input: { checkpoint: C; expectedHeadId: string | null; writer: Writer }, options?: CallOptions) => Promise<{ headId: string }>
  /** Deletes the newest checkpoint of a thread; its parent becomes the head. */
  deleteHead: (input: { threadId: string; checkpointId: string; writer: Writer }, options?: CallOptions) => Promise<void>
  /** Takes the lease of a thread, or is refused at once when another writer holds it. */
  acquireWriter: (threadId: string, options?: CallOptions) => Promise<WriterLease>
  /** Each key that checkpoints name, in the order of its bytes, with the number of checkpoints. */
  listBlobReferences: (options?: CallOptions) => Promise<Array<{ key: string; references: number }>>
}

/** A checkpoint store that can begin a thread with a checkpoint of another one. */
export interface ForkableCheckpointStore<C = Checkpoint> extends CheckpointStore<C> {
  /** Begins an empty thread with a copy of a checkpoint: its files, conversation and artifacts. */
  forkFromCheckpoint: (
    input: {
      sourceThreadId: string
      sourceCheckpointId: string
      destinationThreadId: string
      destinationCheckpointId: string
      createdAt: number
      writer: Writer
    },
    options?: CallOptions,
  ) => Promise<{ checkpoint: C }>
}

/** Where the application keeps the transcripts of its threads: `stores.messages` of its persistence. */
export interface TranscriptStore {
  loadThread: (threadId: string) => Promise<Checkpoint['conversation']>
  // What TanStack's own stores take is an array of their messages.
  saveThread: (threadId: string, messages: any[]) => Promise<void>
}

/** How a checkpoint store works. */
export interface CheckpointStoreOptions extends ConnectionOptions {
  /**
   * The application keeps the bytes of files elsewhere, such as in a bucket of its own.
   * Without it, Cairn refuses a checkpoint whose blobs it does not have.
   */
  externalBlobs?: boolean
  /** Milliseconds that a lease lasts without being renewed: 120,000 unless set. */
  leaseDurationMs?: number
  /**
   * The store serves one sandbox, and refuses as stale what it appends after another
   * one did: its files came from the checkpoint that this store last got or appended,
   * which has to be the head. Nothing is refused before it got or appended one.
   */
  refuseStale?: boolean
}

/** A checkpoint store that can fork. */
export interface ForkableCheckpointStoreOptions extends CheckpointStoreOptions {
  /**
   * The transcripts of the application: a fork writes that of the new thread, which has
   * to have none. Null when the application keeps no transcripts.
   */
  messages: TranscriptStore | null
}

/** Keeps the checkpoints of TanStack AI in Cairn. With `messages` the store can fork. */
export function createCheckpointStore<C = Checkpoint>(options: ForkableCheckpointStoreOptions): ForkableCheckpointStore<C>
export function createCheckpointStore<C = Checkpoint>(options: CheckpointStoreOptions): CheckpointStore<C>
export function createCheckpointStore<C = Checkpoint>(
  options: CheckpointStoreOptions & { messages?: TranscriptStore | null },
): CheckpointStore<C> | ForkableCheckpointStore<C> {
  const cairn = new Connection(options)
  const store: CheckpointStore<C> = {
    get: (id, call) => get<C>(cairn, id, call),
    list: (threadId, call) => list<C>(cairn, threadId, call),
    getHead: (threadId, call) => getHead(cairn, threadId, call),
    append: (input, call) => append(cairn, input, options.externalBlobs, call),
    deleteHead: (input, call) => deleteHead(cairn, input, call),
    acquireWriter: (threadId, call) => acquireWriter(cairn, threadId, options.leaseDurationMs, call),
    listBlobReferences: (call) => listBlobReferences(cairn, call),
  }
  const offered = options.refuseStale ? refusingStale(store) : store
  const { messages } = options
  if (messages === undefined) return offered
  return {
    ...offered,
    forkFromCheckpoint(input, call) {
      const copy = { ...input, writer: writer(input.writer) }
      const fork = forkFromCheckpoint<C>(cairn, store, copy, messages, options.leaseDurationMs, call)
      // TanStack's suite for forks looks at the store before it looks at a refusal,
      // which is not to count as one that nobody looked at.
      fork.catch(() => undefined)
      return fork
    },
  }
}

/** A store that knows which checkpoint the files of its sandbox came from. */
function refusingStale<C>(store: CheckpointStore<C>): CheckpointStore<C> {
  const origins = new Map<string, string>() // by thread
  const came = (checkpoint: C) => {
    const { id, threadId } = checkpoint as Checkpoint
    origins.set(threadId, id)
  }
  return {
    ...store,
    async get(id, call) {
      const found = await store.get(id, call)
      if (found !== null) came(found)
      return found
    },
    async append(input, call) {
      const origin = origins.get((input.checkpoint as Checkpoint).threadId)
      if (origin !== undefined && origin !== input.expectedHeadId) {
        throw await tanstack('SANDBOX_SNAPSHOT_STALE_HEAD', `the sandbox came from checkpoint ${JSON.stringify(origin)}, which is not the head any more`)
      }
      const copy = { ...input.checkpoint }
      const done = await store.append(input, call)
      came(copy)
      return done
    },
    async deleteHead(input, call) {
      const { threadId, checkpointId } = input
      await store.deleteHead(input, call)
      // The files are newer than the new head, whatever that is.
      if (origins.get(threadId) === checkpointId) origins.delete(threadId)
    },
  }
}

/** A checkpoint as Cairn answers with it. */
interface Stored {
  id: string
  kind: string
  manifest?: unknown
}

interface Page {
  next_cursor?: string
}

async function get<C>(cairn: Connection, id: string, call?: CallOptions): Promise<C | null> {
  await identified(id)
  try {
    return manifest<C>(
      await cairn.send<Stored>({ ...call, method: 'GET', path: ['checkpoints', id], query: { manifests: 'true' }, read: json }),
    )
  } catch (error) {
    if ((error as { code?: unknown }).code === 'SANDBOX_SNAPSHOT_MISSING_CHECKPOINT') return null
    throw error
  }
}

async function list<C>(cairn: Connection, threadId: string, call?: CallOptions): Promise<C[]> {
  await identified(threadId)
  const found: C[] = []
  let cursor: string | undefined
  do {
    const page = await cairn.send<Page & { checkpoints: Stored[] }>({
      ...call,
      method: 'GET',
      path: ['threads', threadId, 'checkpoints'],
      query: { order: 'asc', manifests: 'true', cursor },
      read: json,
    })
    found.push(...page.checkpoints.map((stored) => manifest<C>(stored)))
    cursor = page.next_cursor
  } while (cursor !== undefined)
  return found
}

async function getHead(cairn: Connection, threadId: string, call?: CallOptions): Promise<string | null> {
  await identified(threadId)
  const { head } = await cairn.send<{ head?: string }>({ ...call, method: 'GET', path: ['threads', threadId], read: json })
  return head ?? null
}

async function append<C>(
  cairn: Connection,
  input: { checkpoint: C; expectedHeadId: string | null; writer: Writer },
  externalBlobs: boolean | undefined,
  call?: CallOptions,
): Promise<{ headId: string }> {
  const { threadId } = input.checkpoint as { threadId: string }
  if (!identifies(threadId)) await identified(threadId)
  const { head } = await cairn.send<{ head: string }>({
    ...call,
    method: 'POST',
    path: ['threads', threadId, 'manifests'],
    json: {
      checkpoint: input.checkpoint,
      expectedHeadId: input.expectedHeadId,
      writer: writer(input.writer),
      external_blobs: externalBlobs,
    },
    once: true,
    read: json,
  })
  return { headId: head }
}

async function deleteHead(
  cairn: Connection,
  input: { threadId: string; checkpointId: string; writer: Writer },
  call?: CallOptions,
): Promise<void> {
  const { threadId, checkpointId } = input
  const by = writer(input.writer)
  await identified(threadId, checkpointId)
  await cairn.send({
    ...call,
    method: 'DELETE',
    path: ['threads', threadId, 'head'],
    json: { checkpointId, writer: by },
    once: true,
    read: nothing,
  })
}

interface Lease {
  owner_token: string
  fence: number
  expires_at: number
  renew_after_ms: number
}

async function acquireWriter(
  cairn: Connection,
  threadId: string,
  durationMs: number | undefined,
  call?: CallOptions,
): Promise<WriterLease> {
  await identified(threadId)
  const path = ['threads', threadId, 'lease']
  const lease = await cairn.send<Lease>({ ...call, method: 'POST', path, json: { duration_ms: durationMs }, once: true, read: json })
  let expiresAt = lease.expires_at
  return {
    threadId,
    ownerToken: lease.owner_token,
    fence: lease.fence,
    renewAfterMs: lease.renew_after_ms,
    get expiresAt() {
      return expiresAt
    },
    async renew() {
      const renewed = await renewLease(cairn, { threadId, ownerToken: lease.owner_token, fence: lease.fence }, durationMs)
      expiresAt = renewed.expires_at
      return { expiresAt }
    },
    async release() {
      const proof = { owner_token: lease.owner_token, fence: lease.fence }
      await cairn.send({ method: 'DELETE', path, json: proof, read: nothing })
    },
  }
}

/** Lets a lease last from now on; refused when it is over. */
function renewLease(cairn: Connection, by: Writer, durationMs: number | undefined, call?: CallOptions): Promise<Lease> {
  return cairn.send<Lease>({
    ...call,
    method: 'POST',
    path: ['threads', by.threadId, 'lease', 'renew'],
    json: { owner_token: by.ownerToken, fence: by.fence, duration_ms: durationMs },
    read: json,
  })
}

async function listBlobReferences(cairn: Connection, call?: CallOptions): Promise<Array<{ key: string; references: number }>> {
  const found: Array<{ key: string; references: number }> = []
  let cursor: string | undefined
  do {
    const page = await cairn.send<Page & { references: Array<{ key: string; references: number }> }>({
      ...call,
      method: 'GET',
      path: ['blobs', 'references'],
      query: { cursor, limit: '10000' },
      read: json,
    })
    found.push(...page.references)
    cursor = page.next_cursor
  } while (cursor !== undefined)
  return found
}

async function forkFromCheckpoint<C>(
  cairn: Connection,
  store: CheckpointStore<C>,
  input: Parameters<ForkableCheckpointStore['forkFromCheckpoint']>[0],
  messages: TranscriptStore | null,
  durationMs: number | undefined,
  call?: CallOptions,
): Promise<{ checkpoint: C }> {
  const { sourceThreadId, sourceCheckpointId, destinationThreadId, destinationCheckpointId, createdAt } = input
  await identified(sourceThreadId, sourceCheckpointId, destinationThreadId, destinationCheckpointId, input.writer.threadId)
  if (!Number.isFinite(createdAt)) {
    throw await tanstack('SANDBOX_SNAPSHOT_INVALID_ENTRY', 'createdAt has to be a finite number')
  }
  if (sourceThreadId === destinationThreadId) {
    throw await tanstack('SANDBOX_SNAPSHOT_FORK_SOURCE_THREAD_MISMATCH', 'a thread cannot be forked into itself')
  }
  // Read before anything is made, so that nothing can fail afterwards.
  const source = (await store.get(sourceCheckpointId, call)) as Checkpoint | null
  if (source === null) throw await tanstack('SANDBOX_SNAPSHOT_FORK_SOURCE_NOT_FOUND', 'the checkpoint to fork does not exist')
  if (source.threadId !== sourceThreadId) {
    throw await tanstack('SANDBOX_SNAPSHOT_FORK_SOURCE_THREAD_MISMATCH', 'the checkpoint to fork is of another thread')
  }
  if (input.writer.threadId !== destinationThreadId) {
    throw await tanstack('SANDBOX_SNAPSHOT_WRITER_LOST', 'the writer is of another thread than the new one')
  }
  if (messages !== null && (await messages.loadThread(destinationThreadId)).length > 0) {
    // A lease that is lost is the first reason to refuse; renewing it tells.
    await renewLease(cairn, input.writer, durationMs, call)
    throw await tanstack('SANDBOX_SNAPSHOT_FORK_DESTINATION_NOT_EMPTY', 'the new thread has a transcript: take another id')
  }
  await cairn.send({
    ...call,
    method: 'POST',
    path: ['checkpoints', sourceCheckpointId, 'fork'],
    json: {
      thread: destinationThreadId,
      id: destinationCheckpointId,
      source_thread: sourceThreadId,
      created_at_ms: createdAt,
      writer: { owner_token: input.writer.ownerToken, fence: input.writer.fence },
    },
    once: true,
    read: nothing,
  })
  const { label: _, sourceRunId: __, ...kept } = source
  const fork: Checkpoint = {
    ...kept,
    id: destinationCheckpointId,
    threadId: destinationThreadId,
    parentCheckpointId: null,
    createdAt,
    reason: 'fork-root',
  }
  try {
    await messages?.saveThread(destinationThreadId, [...fork.conversation])
  } catch (error) {
    // A thread without the transcript that belongs to its files is not left behind.
    await store.deleteHead({ threadId: destinationThreadId, checkpointId: destinationCheckpointId, writer: input.writer })
    throw error
  }
  return { checkpoint: fork as C }
}

function manifest<C>(stored: Stored): C {
  if (stored.manifest === undefined) {
    throw new CairnError('native_checkpoint', `checkpoint ${JSON.stringify(stored.id)} was not made by TanStack AI: restore it with cairn restore`)
  }
  return stored.manifest as C
}

/** The three members of a writer, which may be a lease. */
function writer({ threadId, ownerToken, fence }: Writer): Writer {
  return { threadId, ownerToken, fence }
}

/** Whether an id can be part of a URL; the server has the other rules. */
function identifies(id: unknown): id is string {
  return typeof id === 'string' && id !== '' && id !== '.' && id !== '..' && !/\p{Surrogate}/u.test(id)
}

/** Refuses ids that no URL can carry. */
async function identified(...ids: unknown[]): Promise<void> {
  if (ids.every(identifies)) return
  throw await tanstack('SANDBOX_SNAPSHOT_INVALID_ID', 'an id has to be a non-empty text of well-formed Unicode other than . and ..')
}
