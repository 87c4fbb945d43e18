import { defineConfig } from 'vitest/config'

export default defineConfig({
  cacheDir: '.vite',
  resolve: { alias: { '@cairnstate/tanstack-ai': new URL('dist/index.js', import.meta.url).pathname } },
  test: { include: ['test/**/*.test.ts'], testTimeout: 60_000 },
})
