/** A message of a conversation: what TanStack AI calls a ModelMessage. It is kept as it is. */
export type Message = any

/** A file of a checkpoint. Its bytes are the blob with that key. */
export interface FileEntry {
  path: string
  kind: 'file'
  blobKey: string
  size: number
}

/** A directory of a checkpoint that holds nothing else. */
export interface DirectoryEntry {
  path: string
  kind: 'dir'
}

/** A generated file that a checkpoint keeps beside the workspace. */
export interface Artifact {
  artifactId: string
  name: string
  mimeType: string
  size: number
  blobKey: string
  createdAt: number
}

/** A checkpoint in the form of TanStack AI. */
export interface Checkpoint {
  id: string
  threadId: string
  parentCheckpointId: string | null
  createdAt: number
  reason: 'automatic' | 'named' | 'fork-root'
  label?: string
  sourceRunId?: string
  files: ReadonlyArray<FileEntry | DirectoryEntry>
  conversation: ReadonlyArray<Message>
  artifacts: ReadonlyArray<Artifact>
}

/** Proves that its holder may write to a thread. */
export interface Writer {
  threadId: string
  ownerToken: string
  fence: number
}

/** A lease, whose times are by the clock of the server. */
export interface WriterLease extends Writer {
  /** When it ends, in milliseconds since 1970; it moves with `renew`. */
  readonly expiresAt: number
  /** How long after `acquireWriter` or `renew` it had better be renewed. */
  readonly renewAfterMs: number
  renew: () => Promise<{ expiresAt: number }>
  release: () => Promise<void>
}
