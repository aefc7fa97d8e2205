// Also has the place of the suite, which has none of the names that Vitest looks for.
export default {
  cacheDir: '../../node_modules/.vite',
  test: { include: ['suite.mjs'] },
};
