-- Format 5: which workers have the shared folder of large blobs, for people who ask why one takes no run.

-- 1: yes, 0: no. NULL: no worker.
ALTER TABLE hosts ADD COLUMN blob_folder BIGINT;
