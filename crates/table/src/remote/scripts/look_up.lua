-- What is surely known of a key: for what was not found, for reading through, for whoever holds a unique value.
-- KEYS  1 meta · 2 rows · 3 deleted
-- ARGV  1 epoch · 2 loaded field · 3 key
-- Answers { value or nil, the drained position, the version of its tombstone or nil }.
local meta = redis.call('HMGET', KEYS[1], 'epoch', ARGV[2], 'drained')
if meta[1] ~= ARGV[1] then return redis.error_reply('EPOCH another server, or another history of it') end
if not meta[2] then return redis.error_reply('NOTLOADED the shard is not loaded') end
return { redis.call('HGET', KEYS[2], ARGV[3]), meta[3] or '0', redis.call('ZSCORE', KEYS[3], ARGV[3]) }
