-- Guards raise inside the statement, so that the COMMIT pipelined behind them finds an aborted transaction.

-- A write that must change exactly the rows it was decided for.
CREATE FUNCTION roadstead.must_hit(hits bigint, what text) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    IF hits = 0 THEN
        RAISE EXCEPTION USING ERRCODE = 'RS002', MESSAGE = 'the row is not as it was decided on: ' || what;
    END IF;
    RETURN hits;
END $$;

-- The count of a caller's claims after one more.
CREATE FUNCTION roadstead.within_quota(used bigint, most bigint) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    IF used > most THEN
        RAISE EXCEPTION USING ERRCODE = 'RS001', MESSAGE = 'the caller holds as many claims as it may';
    END IF;
    RETURN used;
END $$;
