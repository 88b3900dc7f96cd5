create table o1 (a int unique nulls not distinct); --refused
create table o2 (a int, unique nulls not distinct (a)); --refused
create table o3 (a int unique nulls distinct);
create table o4 (a int primary key deferrable); --refused
create table o5 (a int unique deferrable initially deferred); --refused
create table o6 (a int, primary key (a) deferrable); --refused
create table o7 (a int, unique (a) deferrable initially immediate); --refused
create table o8 (a int, unique (a) initially deferred); --refused
create table o9 (a int primary key not deferrable);
create table o10 (a int, unique (a) not deferrable initially immediate);
create table o11 (a int, b int, unique (a) include (b)); --refused
create table o12 (a int, b int, primary key (a) include (b)); --refused
create table o13 (a int, unique (a) with (fillfactor = 50));
create table o14 (a int unique using index tablespace nosuch);
create table o15 (a int, unique (a) using index tablespace pg_default);
create table o16 (a int not null deferrable);
create table o17 (a int, exclude using btree (a with =)); --refused
create table o18 (a int, b int);
alter table o18 add primary key (a) deferrable; --refused
alter table o18 drop constraint if exists o18_pkey; --refused
create table o19 (a int, b int);
alter table o19 add primary key (a) include (b); --refused
create table o20 (a int, b int);
alter table o20 add primary key (a) not deferrable;
alter table o20 add primary key (nosuch);
create table o21 (a int, b int);
alter table o21 add primary key (a) using index tablespace nosuch;
create table o22 (a int);
create unique index o22_i on o22 (a) nulls not distinct; --refused
create unique index o22_j on o22 (a) nulls distinct;
create index o22_k on o22 (a) include (a); --refused
create index o22_l on o22 (a) with (fillfactor = 50);
create index o22_m on o22 (a) with (nosuch = 50);
create index o22_n on o22 (a) with (fillfactor = 5);
create index o22_o on o22 using nosuch (a);
create index o22_p on o22 using hash (a); --refused
create index o22_q on o22 using btree (a);
create index o22_r on o22 (a) tablespace nosuch;
create index o22_s on o22 (a) tablespace pg_default;
create index o22_t on o22 (a int4_ops); --refused
create index o22_u on o22 (a nosuch_ops); --refused
create index o22_v on o22 (a collate nosuch); --refused
create table w1 (a int) with (nosuch = 2);
create table w2 (a int) with (fillfactor = 50);
create table w3 (a int) with (fillfactor = 5);
create table w4 (a int) with (fillfactor = 'x');
create table w5 (a int) with (autovacuum_enabled = false); --refused
create table w6 (a int) with (fillfactor = 50, nosuch = 2);
create table w7 (a int) with (nosuch.fillfactor = 50);
create table w8 (a int) with ();
create table w9 (a int) using nosuch;
create table w10 (a int) using heap;
create table w11 (a int) using btree;
show default_table_access_method;
set default_table_access_method = heap;
set default_table_access_method = 'nosuch';
set default_table_access_method = 'Heap';
set default_table_access_method = '';
create table w12 (a int) tablespace nosuch;
create table w13 (a int) tablespace pg_default;
create table w14 (a int) without oids;
create table w15 (a int) with (oids = true);
create table w16 (a int) with (fillfactor);
create table w17 (a int) with (fillfactor = 50) with (fillfactor = 60);
create table w18 (a int) with (fillfactor = 50, fillfactor = 60);
create table w19 (a int) tablespace pg_default using heap;
explain (nosuch) select 1;
explain (format nosuch) select 1;
explain (costs nosuch) select 1;
explain (analyze, nosuch) select 1;
explain (verbose, format text, nosuch) select 1;
explain () select 1;
explain (wal) select 1;
explain (timing) select 1;
vacuum (nosuch) o22;
vacuum (analyze, nosuch) o22;
vacuum (full nosuch) o22;
vacuum (freeze, verbose off) o22;
vacuum (parallel 2) o22;
vacuum (parallel -2) o22;
vacuum (index_cleanup nosuch) o22;
vacuum (index_cleanup auto, truncate false, skip_locked, process_toast) o22;
vacuum (full, disable_page_skipping) o22;
vacuum o22 (a);
vacuum analyze o22 (a);
analyze (nosuch) o22;
analyze (verbose off, skip_locked) o22;
analyze o22 (nosuch);
analyze o22 (a, a);
copy o22 to stdout with (nosuch);
copy o22 to stdout with (format nosuch);
copy o22 to stdout (format csv, format csv);
unlisten *;
unlisten nosuch;
unlisten a b;
discard nosuch;
create table t1 (a int) on commit drop; --refused
create unlogged table t2 (a int);
create table t3 (a int, b int, constraint c unique (a), constraint c unique (b));
create table t4 (a int, constraint t4 unique (a));
create table t5 (a int constraint o22 unique);
create table t6 (a int unique, a_key int, unique (a));
select * from o22 for update of nosuch;
select * from o22 for update of o22;
select * from o22 x for update of o22;
select * from o22 x for update of x;
select * from o22 for share;
select * from o22 for no key update;
select * from o22 for key share;
select * from o22 for key share of nosuch;
select * from o22 x for no key update of x nowait;
select * from o22 for share skip locked;
select * from o22 for key share of o22 for update nowait;
select * from o22 for share for no key update of nosuch;
select count(*) from o22 for no key update;
select a from o22 group by a for key share nowait;
select distinct a from o22 for share for update;
values (1) for key share skip locked;
select * from o22 for no update;
select * from o22 for key update;
select count(*) from o22 for update;
select count(*) from o22 for share;
select a from o22 group by a for update;
select distinct a from o22 for update;
select 1 from o22 having true for update;
values (1) for update;
insert into o22 overriding system value select 1 where false; --refused
insert into o22 as x values (2) returning x.a;
insert into o22 default values returning a;
select all a from o22 order by a;
select a from only o22 order by a;
update only o22 set a = 3 where a = 2;
delete from only o22 where a = 3;
table o22 order by a; --refused
select a from o22 tablesample system (100); --refused
select a from o22 limit 1 fetch first 1 row only;
truncate o22 restart identity cascade;
truncate only o22, w2;
create table vac (a int primary key, b int);
vacuum vac (a);
vacuum nosuch;
vacuum vac, nosuch;
vacuum (analyze) vac (a, nosuch);
vacuum (analyze) vac (a, a);
analyze vac (nosuch);
analyze vac (a, b);
analyze nosuch;
vacuum (full, parallel 2) vac;
vacuum (parallel) vac;
vacuum (parallel -1) vac;
vacuum (parallel 2000) vac;
vacuum (index_cleanup maybe) vac;
vacuum (index_cleanup auto) vac;
vacuum (full, freeze, verbose off) vac;
vacuum full freeze vac;
vacuum vac_pkey;
analyze vac_pkey;
begin;
vacuum vac;
rollback;
begin;
analyze vac;
rollback;
drop table vac;
create table pkc (a int not null, b int not null);
create table pkc_pkey (a int);
alter table pkc add primary key (a);
alter table pkc add constraint pkc_pkey primary key (a);
alter table pkc add constraint other primary key (a);
alter table pkc add primary key (b);
drop table pkc_pkey;
drop table pkc;
create table pkd (a int, b int);
create index pkd_pkey on pkd (b);
alter table pkd add primary key (a);
drop table pkd;
create table pke_pkey (a int);
create table pke (a int primary key);
create table pke2 (a int unique, b int unique);
create table pke2_a_key (a int);
drop table pke, pke2, pke_pkey, pke2_a_key;
alter table if exists nosuch add primary key (a);
alter table nosuch add primary key (a);
create table rel (a int primary key, b int);
create index rel_b on rel (b);
select * from rel_b;
select * from rel_pkey;
insert into rel_b values (1);
update rel_b set a = 1;
delete from rel_pkey;
truncate rel_b;
copy rel_b to stdout;
drop index rel;
drop index if exists rel;
drop table rel_b;
drop table if exists rel_b;
drop table rel_pkey;
drop index rel_pkey;
drop index rel_b, rel_b;
analyze rel_b;
vacuum analyze rel_b, rel;
drop table rel, rel;
drop table rel;
create table pkn (x int not null, y int, constraint pkn_k unique (y));
create table pkn_other (y int);
alter table pkn add constraint pkn_other primary key (x);
alter table pkn add constraint pkn_k primary key (x);
create table pkn_pkey (z int);
alter table pkn add primary key (x);
insert into pkn values (1, 1), (1, 2);
drop table pkn, pkn_other, pkn_pkey;
create table qualified (v pg_catalog.varchar(3), c pg_catalog.bpchar(2));
insert into qualified values ('abcd', 'a');
insert into qualified values ('abc', 'a') returning v, c;
select 'abcdef'::pg_catalog.varchar(3), 'abc'::bpchar(2), 'abc'::pg_catalog.varchar;
select 'abc'::bpchar(0);
select 'abc'::pg_catalog.varchar(99999999);
select 'abc'::pg_catalog.varchar(1, 2);
select 1.239::pg_catalog.numeric(10, 2); --refused
select timestamp '2020-01-01 00:00:01.5'::pg_catalog.timestamp(0); --refused
select 'x'::text(5);
select 1::pg_catalog.int4(5);
