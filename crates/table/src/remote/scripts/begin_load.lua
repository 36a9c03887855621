-- Notes from where a scan of the database is good, and keeps tombstones until it has ended.
-- KEYS  1 meta · 2 hold
-- ARGV  1 epoch · 2 loaded field · 3 hold's lifetime in milliseconds · 4 token of the load
-- Answers { loaded: 1 or 0, the drained position, the shard's epoch }.
local meta = redis.call('HMGET', KEYS[1], 'epoch', ARGV[2], 'drained')
if meta[1] ~= ARGV[1] then return redis.error_reply('EPOCH another server, or another history of it') end
redis.call('SET', KEYS[2], ARGV[4], 'PX', ARGV[3])
return { meta[2] and 1 or 0, meta[3] or '0', meta[1] }
