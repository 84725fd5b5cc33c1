// Names of secrets that a test has granted.

import { denial, fails, host } from "./current.js";

export function placeholder(name) {
  const isGranted = host().grants.secrets?.includes(name);
  return isGranted ? `<secret ${name}>` : fails(denial("secrets", name));
}
