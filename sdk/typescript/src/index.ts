export { createBlobStore } from './blobs.js'
export type { BlobObject, BlobRecord, BlobStore, BlobStoreOptions } from './blobs.js'
export type { Artifact, Checkpoint, DirectoryEntry, FileEntry, Message, Writer, WriterLease } from './checkpoint.js'
export { createCheckpointStore } from './checkpoints.js'
export type {
  CheckpointStore,
  CheckpointStoreOptions,
  ForkableCheckpointStore,
  ForkableCheckpointStoreOptions,
  TranscriptStore,
} from './checkpoints.js'
export type { CallOptions, ConnectionOptions } from './connection.js'
export { CairnError } from './errors.js'
export { createForkedTranscripts } from './transcripts.js'
export type { ForkedTranscriptsOptions } from './transcripts.js'
