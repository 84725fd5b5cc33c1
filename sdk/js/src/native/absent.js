/** Returns a function that throws: what a test must pass in its place. */
export const absent = (what) => () => {
  throw new Error(`a native test passes ${what} of @conclave/sdk/testing`);
};
